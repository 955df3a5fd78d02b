#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace openreg {

/// Bytes of memory that this process may use: the machine's, or the limit of its control group if
/// that is lower. Throws Error if the system does not report it.
std::size_t host_memory();

/// The lowest memory limit of this process's control group and the groups around it (cgroup v1 and
/// v2), or nullopt if there is none. `root` stands for the file system's root; it is a parameter
/// for the tests.
std::optional<std::size_t> cgroup_memory_limit(const std::filesystem::path& root = "/");

/// How many bytes of memory this process can still take: what the machine has available, or what
/// its control group and the groups around it (cgroup v1 and v2) have left, if that is less. Memory
/// that the system can take back from its file cache counts; swap does not. nullopt if the system
/// does not say. `root` stands for the file system's root.
std::optional<std::size_t> host_memory_left(const std::filesystem::path& root = "/");

/// The capacity of a device if TORCH_OPENREG_MEMORY is not set: 0.8 of host_memory(), shared
/// between `devices`.
std::size_t default_device_memory(int devices);
/// The capacity of a device that does not compute if TORCH_OPENREG_MEMORY is not set.
inline constexpr std::size_t kIdleDeviceMemory = std::size_t{80} << 30;

}  // namespace openreg
