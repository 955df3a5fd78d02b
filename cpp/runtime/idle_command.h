#pragma once

#include <cstddef>
#include <span>

#include "runtime/command.h"
#include "runtime/stream.h"

namespace openreg {

/// Like Stream::enqueue() with a kernel that does nothing: the command is not queued if its
/// run is not observable: outside of captures, recorded traces and adversarial schedules.
void enqueue_idle(Stream& stream, const Kernel& kernel, std::span<const std::byte> arguments);

}  // namespace openreg
