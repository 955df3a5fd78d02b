#pragma once

#include <c10/util/Exception.h>

#include <string_view>

namespace openreg::ops {

/// Keeps ATen's warning about resized outputs from coming out of kernels. Outputs were sized, with
/// that warning where it was due, when the operator was called; a kernel may still bring one to
/// another shape and back in between (mse_loss does). Other warnings pass.
class ResizeWarningFilter final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    constexpr std::string_view kStart = "An output with one or more elements was resized";
    if (std::string_view(warning.msg()).substr(0, kStart.size()) != kStart) next_->process(warning);
  }

 private:
  c10::WarningHandler* next_ = c10::WarningUtils::get_warning_handler();
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace openreg::ops
