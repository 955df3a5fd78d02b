#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

#include "backend/device.h"
#include "runtime/stream.h"

namespace openreg::backend {

/// The calling thread's current stream on a device (-1: the current device); the device's default
/// stream until set. Throws c10::Error if there is no such device, and if it cannot be used.
openreg::Stream& current_stream(c10::DeviceIndex device = -1);
/// Makes `stream` current on its device for the calling thread and returns the previous one. Does
/// not switch devices.
openreg::Stream& exchange_current_stream(openreg::Stream& stream);

/// A stream of PyTorch as the runtime's, and the reverse. to_runtime() throws c10::Error for a
/// stream of another device type, and if there is no such stream.
openreg::Stream& to_runtime(const c10::Stream& stream);
c10::Stream to_torch(const openreg::Stream& stream);

/// The handle that PyTorch's Python classes show. As in CUDA, that of the default stream is 0.
std::uintptr_t handle_of(const openreg::Stream& stream);

/// Reports to PyTorch's GPU tracing, if the slot has it, that the host is about to wait for
/// `stream`.
void trace_synchronization(const openreg::Stream& stream);

/// A stream from the device's pool of 32 per priority, handed out in turn and never destroyed, as
/// on CUDA. Thread safe. Throws as current_stream() does.
openreg::Stream& stream_from_pool(c10::DeviceIndex device, Priority priority);

}  // namespace openreg::backend
