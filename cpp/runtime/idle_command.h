#pragma once

#include <cstddef>
#include <span>

#include "runtime/command.h"
#include "runtime/stream.h"

namespace openreg {

/// Like Stream::enqueue() with a kernel that does nothing, or that only writes a few bytes
/// (`writes`). Outside of captures, recorded traces and adversarial schedules it cannot be observed
/// when it runs: one that does nothing is dropped, and one that writes runs at once if the stream
/// has no work.
void enqueue_idle(Stream& stream, const Kernel& kernel, std::span<const std::byte> arguments,
                  bool writes);

}  // namespace openreg
