#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/ScalarType.h>

#include <string>

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
void start_race_detection_if_enabled();

/// The dtype as Python names it; static.
const char* dtype_name(c10::ScalarType dtype);
/// The use of a tensor's memory, in device or pinned memory.
memory::MemoryUse use_of(const at::TensorBase& tensor, bool writes);

/// Installed by the bindings: throws the exception that PyTorch turns into Python's
/// torch.openreg.UnsynchronizedAccessError.
void set_race_error(void (*throw_it)(const std::string& message)) noexcept;
[[noreturn]] void throw_race_error(const memory::RaceError& error);

}  // namespace openreg::backend
