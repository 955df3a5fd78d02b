#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/command.h"

namespace openreg::memory {

/// Stands for a kernel that does not run, also in errors and traces. It does nothing, or fills
/// results.
class IdleKernel final : public Kernel {
 public:
  /// A result: 0, 1, 2, ... modulo `modulus` as int64, or, if that is 0, bytes of the same value.
  struct Fill {
    std::byte* begin;
    std::size_t bytes;
    std::int64_t modulus;
    std::uint8_t value;
  };

  /// With `fills` the arguments of its commands are those that with_fills() makes.
  IdleKernel(const Kernel& kernel, bool fills);

  static std::vector<std::byte> with_fills(std::span<const std::byte> arguments,
                                           std::span<const Fill> fills);
};

}  // namespace openreg::memory
