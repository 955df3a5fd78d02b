#pragma once

#include <ATen/core/Generator.h>

#include <optional>

namespace torch_acme {

const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

/// A generator of the CPU for one call of a random operator, from the given generator of the
/// device, or from its default one. The host reads and advances the offset when it launches, so the
/// numbers do not depend on when the streams run.
at::Generator take_cpu_generator(const std::optional<at::Generator>& given,
                                 c10::DeviceIndex device);

}  // namespace torch_acme
