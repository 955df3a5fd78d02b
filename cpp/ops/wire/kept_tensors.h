#pragma once

#include <cstdint>

#include "ops/wire/argument_reader.h"
#include "ops/wire/command_layout.h"

namespace openreg::ops {

/// Tensors of commands that have run, kept by the thread that ran them: the next command of the
/// same plan differs in memory and values only, and gets the same objects. Bounded; the calling
/// thread's.
class KeptTensors {
 public:
  /// False: there are none for this plan (0: of no plan).
  static bool take(std::uint64_t plan, CommandTensors& tensors);
  /// After the command. Kept only if nobody else refers to them and the kernel has left them as
  /// they were.
  static void put(const CommandView& command, CommandTensors&& tensors);
};

}  // namespace openreg::ops
