#include "runtime/address_space/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "runtime/error.h"

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

// A group is also bound by its parents' limits. Inside a container the group's path is often the
// host's and does not exist here: the walk up then ends at the mount, which is the container's own
// group.
std::optional<std::size_t> lowest_limit(const fs::path& mount, fs::path group, const char* file) {
  std::optional<std::size_t> lowest;
  while (true) {
    const auto limit = read_limit(mount / group / file);
    if (limit && (!lowest || *limit < *lowest)) lowest = limit;
    if (group.empty()) return lowest;
    group = group.parent_path();
  }
}

}  // namespace

std::optional<std::size_t> cgroup_memory_limit(const fs::path& root) {
  // A line is "<hierarchy>:<controllers>:/<path>". Version 2 has hierarchy 0 and no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  std::optional<std::size_t> lowest;
  for (std::string line; std::getline(groups, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path group = fs::path(line.substr(second + 1)).relative_path();
    std::optional<std::size_t> limit;
    if (controllers == ",,") {
      limit = lowest_limit(root / "sys/fs/cgroup", group, "memory.max");
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit = lowest_limit(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
    }
    if (limit && (!lowest || *limit < *lowest)) lowest = limit;
  }
  return lowest;
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
