#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>

#include "backend/device.h"

namespace openreg::backend {

/// What a random kernel needs: Philox 4x32-10 is a pure function of it.
struct PhiloxState {
  std::uint64_t seed;
  std::uint64_t offset;
};

/// Takes `increment` numbers (rounded up to a multiple of 4, as CUDA does) from `generator`, or
/// from the device's default one, at launch, under its lock. Throws c10::Error if the generator is
/// of another device.
PhiloxState reserve_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           std::uint64_t increment);

const at::Generator& default_generator(c10::DeviceIndex device = -1);
at::Generator new_generator(c10::DeviceIndex device = -1);

}  // namespace openreg::backend
