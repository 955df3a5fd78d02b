#pragma once

#include <filesystem>
#include <optional>

namespace openreg {

/// Number of cores that the process may use, at least 1: those that the main thread or the thread
/// that last refreshed the number may run on (`taskset`), or fewer if a control group limits the
/// process's share of processor time (`docker run --cpus`). Thread safe, and costs no system call.
int usable_cores() noexcept;

/// Determines usable_cores() anew, at most once in 100 ms, which takes some 50 us: the limits can
/// change while the process runs.
void refresh_usable_cores() noexcept;

/// The share of processor time, in cores, that control groups leave to a process: the smallest
/// quota of its group and of the groups above it. Null: no limit. Understands both versions of the
/// kernel's interface. `groups`: the content of /proc/self/cgroup; `root`: where the hierarchies
/// are mounted. For refresh_usable_cores() and tests.
std::optional<double> processor_quota(const std::filesystem::path& groups,
                                      const std::filesystem::path& root);

}  // namespace openreg
