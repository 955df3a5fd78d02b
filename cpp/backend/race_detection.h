#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <string_view>

#include "memory/memory_use.h"
#include "memory/race_detector.h"

namespace openreg::backend {

/// What torch.openreg.set_race_detection_mode does: waits for all devices, then switches. Throws as
/// synchronize_device() does.
void set_race_detection_mode(RaceDetectionMode mode);
/// The present mode, or what it will be when the device comes into use. Throws Error if the
/// settings are malformed.
RaceDetectionMode race_detection_mode();
/// Called at the first use of memory: switches to what TORCH_OPENREG_DETECT_RACES says. Throws
/// Error if the settings are malformed.
void start_race_detection_if_asked();

/// The dtype as Python names it; static.
const char* dtype_name(c10::ScalarType dtype);
/// The use of a tensor's memory, in device or pinned memory.
memory::MemoryUse use_of(const at::TensorBase& tensor, bool writes);

/// Whether the operator uses some elements of this tensor, counted from 0 among those of the call,
/// which depend on the values of others: for indexing.
bool uses_some_elements(std::string_view op, int tensor, bool writes);

/// To be called when the calling thread, which has waited for the current stream, is about to
/// access a device tensor's memory itself. `op` names the operator, `argument` and `element` the
/// tensor, as in memory::MemoryUse. Throws as backend::submit() does.
void check_host_access(const char* op, const at::TensorBase& tensor, bool writes,
                       std::int16_t argument, std::uint16_t element);
inline void note_host_access(const char* op, const at::TensorBase& tensor, bool writes,
                             std::int16_t argument, std::uint16_t element = 0) {
  if (memory::RaceDetector::get()) check_host_access(op, tensor, writes, argument, element);
}

/// Installed by the bindings: throws the exception that PyTorch turns into Python's
/// torch.openreg.UnsynchronizedAccessError.
void set_race_error(void (*throw_it)(const std::string& message)) noexcept;
[[noreturn]] void throw_race_error(const memory::RaceError& error);

}  // namespace openreg::backend
