#pragma once

#include <c10/util/Exception.h>

namespace openreg::ops {

/// While a command runs: keeps warnings from coming out of its kernel that were told when the
/// operator was called. Those are all, where the call has tried the kernel (Note [Trial]); and in
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

}  // namespace openreg::ops
