#pragma once

#include <cstddef>
#include <optional>

namespace openreg {

/// Every environment variable that the library reads (docs/settings.md lists them).
struct Settings {
  int devices = 2;                    ///< TORCH_OPENREG_DEVICES: number of devices, 1 to 64
  std::optional<std::size_t> memory;  ///< TORCH_OPENREG_MEMORY: bytes per device ("8GiB", "512MiB", "4096"); unset: see address_space.h
  int engines = 1;                    ///< TORCH_OPENREG_ENGINES: threads that run commands, 1 to 1024; default cores - 1, at least 1
  bool launch_blocking = false;       ///< TORCH_OPENREG_LAUNCH_BLOCKING: 0 or 1; each launch waits and raises where it was made
  bool fault_message = true;          ///< TORCH_OPENREG_FAULT_MESSAGE: 0 or 1; one line when the host touches device memory
};

/// The settings, read from the environment once, at the first call. Thread safe.
/// Throws Error naming the variable, its value and what is allowed; a later call throws again.
const Settings& settings();

/// Number of devices, or 0 where the settings are malformed: for callers that must not throw.
int device_count() noexcept;

/// Parses settings from the present environment, without caching. For tests and for settings().
Settings read_settings();

}  // namespace openreg
