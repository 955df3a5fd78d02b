#include "base/usable_cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

namespace openreg {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRefreshEvery{100};

int cores_of_affinity() {
  cpu_set_t main_thread;
  cpu_set_t this_thread;
  if (sched_getaffinity(getpid(), sizeof(main_thread), &main_thread) != 0 ||
      sched_getaffinity(0, sizeof(this_thread), &this_thread) != 0) {
    // The kernel has been built for more processors than fit into the set.
    return static_cast<int>(std::thread::hardware_concurrency());
  }
  CPU_OR(&main_thread, &main_thread, &this_thread);
  return CPU_COUNT(&main_thread);
}

// Quota and period of one group. Version 2 has both in one file, and "max" for no limit; version 1
// has -1.
std::optional<double> quota_of(const fs::path& group) {
  std::string quota;
  double period = 0;
  if (std::ifstream file(group / "cpu.max"); !(file >> quota >> period)) {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  const double microseconds = std::strtod(quota.c_str(), nullptr);
  if (microseconds <= 0 || period <= 0) return std::nullopt;
  return microseconds / period;
}

bool names_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const auto end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "cpu") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

constinit std::atomic<int> g_cores{0};                // 0: not determined yet
constinit std::atomic<std::int64_t> g_determined{0};  // when; Clock's count

int determine() noexcept {
  int cores = std::max(1, cores_of_affinity());
  try {
    if (const auto quota = processor_quota("/proc/self/cgroup", "/sys/fs/cgroup"))
      cores = std::clamp(static_cast<int>(std::ceil(*quota)), 1, cores);
  } catch (const std::exception&) {
    // Out of memory. The number is refreshed soon.
  }
  g_cores.store(cores, std::memory_order_relaxed);
  return cores;
}

}  // namespace

std::optional<double> processor_quota(const fs::path& groups, const fs::path& root) {
  std::optional<double> smallest;
  std::ifstream lines(groups);
  for (std::string line; std::getline(lines, line);) {  // "number:controllers:/path"
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    if (!controllers.empty() && !names_cpu(controllers)) continue;
    const fs::path hierarchy = controllers.empty() ? root : root / "cpu";
    // In a container the path may be the host's, which is not visible: then only the last step of
    // the loop, the container's own group, finds a file.
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path();;
         path = path.parent_path()) {
      if (const auto quota = quota_of(hierarchy / path))
        smallest = std::min(smallest.value_or(*quota), *quota);
      if (path.empty()) break;
    }
  }
  return smallest;
}

int usable_cores() noexcept {
  if (const int known = g_cores.load(std::memory_order_relaxed)) return known;
  return determine();
}

void refresh_usable_cores() noexcept {
  const auto now = Clock::now().time_since_epoch().count();
  auto last = g_determined.load(std::memory_order_relaxed);
  if (last != 0 && Clock::duration(now - last) < kRefreshEvery) return;
  if (g_determined.compare_exchange_strong(last, now, std::memory_order_relaxed)) determine();
}

}  // namespace openreg
