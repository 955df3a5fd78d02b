#include "base/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/error.h"

namespace openreg {

namespace {

namespace fs = std::filesystem;

// A limit file holds a number, or "max" in version 2; version 1 writes a number near 2^63 for "no
// limit", which the comparison with the machine's memory makes harmless.
std::optional<std::size_t> read_limit(const fs::path& file) {
  std::ifstream stream(file);
  std::size_t bytes = 0;
  if (stream >> bytes) return bytes;
  return std::nullopt;
}

// The files of a version of control groups.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  std::array<const char*, 3> reclaimable;  // in memory.stat; null: none
};
constexpr GroupFiles kVersion1{"sys/fs/cgroup/memory",
                               "memory.limit_in_bytes",
                               "memory.usage_in_bytes",
                               {"total_inactive_file", "total_active_file", nullptr}};
constexpr GroupFiles kVersion2{"sys/fs/cgroup",
                               "memory.max",
                               "memory.current",
                               {"inactive_file", "active_file", "slab_reclaimable"}};

// Lines of "name number".
std::size_t read_reclaimable(const fs::path& group, const GroupFiles& files) {
  std::ifstream stream(group / "memory.stat");
  std::string name;
  std::size_t bytes = 0;
  std::size_t sum = 0;
  while (stream >> name >> bytes) {
    for (const char* const wanted : files.reclaimable) {
      if (wanted != nullptr && name == wanted) sum += bytes;
    }
  }
  return sum;
}

std::optional<std::size_t> read_left(const fs::path& group, const GroupFiles& files) {
  const auto limit = read_limit(group / files.limit);
  const auto usage = read_limit(group / files.usage);
  if (!limit || !usage) return std::nullopt;
  const std::size_t reclaimable = std::min(*usage, read_reclaimable(group, files));
  const std::size_t used = *usage - reclaimable;
  return *limit > used ? *limit - used : 0;
}

// The lowest value of f(group, files) for the process's group and those around it. A group is also
// bound by its parents' limits. Inside a container the group's path is often the host's and does
// not exist here: the walk up then ends at the mount, which is the container's own group.
template <class F>
std::optional<std::size_t> lowest_of_groups(const fs::path& root, F f) {
  // A line is "<hierarchy>:<controllers>:/<path>". Version 2 has hierarchy 0 and no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  std::optional<std::size_t> lowest;
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_version2 = controllers == ",,";
    if (!is_version2 && controllers.find(",memory,") == std::string::npos) continue;
    const GroupFiles& files = is_version2 ? kVersion2 : kVersion1;
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    while (true) {
      const std::optional<std::size_t> value = f(root / files.mount / group, files);
      if (value && (!lowest || *value < *lowest)) lowest = value;
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return lowest;
}

std::optional<std::size_t> machine_memory_left(const fs::path& root) {
  constexpr std::size_t kKiB = 1024;
  std::ifstream lines(root / "proc/meminfo");
  std::string name;
  std::size_t kilobytes = 0;
  for (std::string unit; lines >> name >> kilobytes && std::getline(lines, unit);) {
    if (name == "MemAvailable:") return kilobytes * kKiB;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::size_t> cgroup_memory_limit(const fs::path& root) {
  return lowest_of_groups(root, [](const fs::path& group, const GroupFiles& files) {
    return read_limit(group / files.limit);
  });
}

std::optional<std::size_t> host_memory_left(const fs::path& root) {
  const auto machine = machine_memory_left(root);
  const auto group = lowest_of_groups(root, &read_left);
  return machine && group ? std::min(machine, group) : (machine ? machine : group);
}

std::size_t host_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) {
    throw Error("openreg: the size of the machine's memory is unknown; set TORCH_OPENREG_MEMORY");
  }
  const auto physical = static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
  return std::min(physical, cgroup_memory_limit().value_or(physical));
}

std::size_t default_device_memory(int devices) {
  return host_memory() / 10 * 8 / static_cast<std::size_t>(devices);
}

}  // namespace openreg
