#pragma once

#include <c10/util/Exception.h>

#include <vector>

namespace openreg::ops {

/// While a command runs, drops those warnings of its kernel that were reported when the operator
/// was called. If the call has tried the kernel (Note [Probes]), these are all of its warnings; in
/// any case they include those of ATen's functions that run on the host as well as in the kernel.
/// Other warnings pass.
class RepeatedWarningFilter final : public c10::WarningHandler {
 public:
  void drop_all() noexcept { drops_all_ = true; }

  void process(const c10::Warning& warning) override;

 private:
  bool drops_all_ = false;
  c10::WarningHandler* next_ = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

/// While it lives, collects the calling thread's warnings instead of reporting them.
class CollectedWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { warnings_.push_back(warning); }
  const std::vector<c10::Warning>& get() const noexcept { return warnings_; }

 private:
  std::vector<c10::Warning> warnings_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

/// ATen reports some warnings once per process, and others each time. Given the warnings of two
/// equal runs, this reports those of the first that the second did not repeat, and returns the
/// others, which every call must report.
std::vector<c10::Warning> report_once_only(const std::vector<c10::Warning>& first,
                                           const std::vector<c10::Warning>& second);

}  // namespace openreg::ops
