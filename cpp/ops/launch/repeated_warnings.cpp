#include "ops/launch/repeated_warnings.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace openreg::ops {

void RepeatedWarningFilter::process(const c10::Warning& warning) {
  static constexpr std::array<std::string_view, 4> kOfTheHost{
      // Outputs got their sizes at the call; a kernel may change the shape of one and restore it
      // (mse_loss does).
      "An output with one or more elements was resized",
      // From meta functions, which kernels call again.
      "indexing with dtype torch.uint8 is now deprecated",
      "The reduce argument of torch.scatter with Tensor src is deprecated",
      // From factories.
      "ComplexHalf support is experimental",
  };
  const std::string_view message = warning.msg();
  const bool is_known =
      std::any_of(kOfTheHost.begin(), kOfTheHost.end(),
                  [&](std::string_view start) { return message.substr(0, start.size()) == start; });
  if (!drops_all_ && !is_known) next_->process(warning);
}

std::vector<c10::Warning> report_once_only(const std::vector<c10::Warning>& first,
                                           const std::vector<c10::Warning>& second) {
  for (const auto& warning : first) {
    const bool repeated = std::any_of(second.begin(), second.end(), [&](const auto& other) {
      return other.msg() == warning.msg();
    });
    if (!repeated) c10::warn(warning);
  }
  return second;
}

}  // namespace openreg::ops
