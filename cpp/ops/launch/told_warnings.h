#pragma once

#include <c10/util/Exception.h>

#include <vector>

namespace openreg::ops {

/// While a command runs: keeps warnings from coming out of its kernel that were told when the
/// operator was called. Those are all, if the call has tried the kernel (Note [Probes]); and in
/// any case what ATen's functions say that run on the host as well as in the kernel. Other warnings
/// pass.
class ToldWarningFilter final : public c10::WarningHandler {
 public:
  void drop_all() noexcept { drops_all_ = true; }

  void process(const c10::Warning& warning) override;

 private:
  bool drops_all_ = false;
  c10::WarningHandler* next_ = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

/// While alive: keeps the calling thread's warnings from being reported.
class CollectedWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { warnings_.push_back(warning); }
  const std::vector<c10::Warning>& get() const noexcept { return warnings_; }

 private:
  std::vector<c10::Warning> warnings_;
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

/// ATen gives many warnings once in a process, others each time. Of those that the first of two
/// like runs gave, reports the ones that the second did not give, and returns the others: what
/// every call is to report.
std::vector<c10::Warning> report_once_only(const std::vector<c10::Warning>& first,
                                           const std::vector<c10::Warning>& second);

}  // namespace openreg::ops
