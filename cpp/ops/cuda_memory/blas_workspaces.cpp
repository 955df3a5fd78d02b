#include "ops/cuda_memory/blas_workspaces.h"

#include <c10/core/Allocator.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "backend/allocation_label.h"
#include "backend/allocator.h"
#include "base/settings.h"
#include "memory/command_check.h"
#include "ops/cuda_memory/gpu.h"

namespace openreg::ops::cuda_memory {

namespace {

constexpr std::size_t kKiB = 1024;

std::size_t default_bytes() {
  const auto major = gpu().major;
  const bool large = major == 9 || major == 10 || major == 12;
  return large ? std::size_t{32} * kKiB * kKiB : (2 * 4096 + 8 * 16) * kKiB;
}

bool is_unified() { return cuda_library_settings().unified_blas_workspace; }

/// Numbers of handles: of each device the lowest that no living thread has.
class HandlePool {
 public:
  unsigned take(int device) {
    const std::lock_guard lock(mutex_);
    auto& free = free_[device];
    if (free.empty()) return made_[device]++;
    const auto handle = free.back();
    free.pop_back();
    return handle;
  }
  void give_back(const std::map<int, unsigned>& handles) {
    const std::lock_guard lock(mutex_);
    for (const auto& [device, handle] : handles) free_[device].push_back(handle);
  }

  // Leaked: threads end during static destruction, too.
  static HandlePool& get() {
    static auto& pool = *new HandlePool;
    return pool;
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<unsigned>> free_;
  std::map<int, unsigned> made_;
};

unsigned handle_of_this_thread(int device) {
  struct Handles {
    std::map<int, unsigned> of_device;
    ~Handles() { HandlePool::get().give_back(of_device); }
  };
  thread_local Handles handles;
  const auto known = handles.of_device.find(device);
  if (known != handles.of_device.end()) return known->second;
  return handles.of_device[device] = HandlePool::get().take(device);
}

struct Workspace {
  c10::DataPtr memory;
  std::size_t bytes;
  CaptureId capture;
};

struct Workspaces {
  using Key = std::tuple<const Stream*, unsigned, BlasLibrary>;

  std::mutex mutex;
  std::map<Key, Workspace> by_key;
  std::array<std::optional<std::size_t>, 2> chosen;

  static Workspaces& get() {
    static auto& workspaces = *new Workspaces;
    return workspaces;
  }

  /// Memory is freed without the lock.
  template <class Which>
  void clear(Which&& which) {
    std::vector<Workspace> freed;
    const std::lock_guard lock(mutex);
    for (auto each = by_key.begin(); each != by_key.end();) {
      if (which(each->second)) {
        freed.push_back(std::move(each->second));
        each = by_key.erase(each);
      } else {
        ++each;
      }
    }
  }
};

}  // namespace

std::size_t blas_workspace_bytes(BlasLibrary library) {
  auto& workspaces = Workspaces::get();
  std::array<std::optional<std::size_t>, 2> chosen;
  {
    const std::lock_guard lock(workspaces.mutex);
    chosen = workspaces.chosen;
  }
  const auto& environment = cuda_library_settings();
  const auto configured = environment.blas_workspace.value_or(default_bytes());
  const auto bytes = chosen[0].value_or(configured);
  if (library == BlasLibrary::kCublas) return bytes;
  const auto lt_default = is_unified() ? configured : kKiB * kKiB;
  const auto lt = chosen[1].value_or(environment.blaslt_workspace.value_or(lt_default));
  return is_unified() ? std::min(lt, bytes) : lt;
}

void set_blas_workspace_bytes(BlasLibrary library, std::optional<std::size_t> bytes) {
  auto& workspaces = Workspaces::get();
  const std::lock_guard lock(workspaces.mutex);
  workspaces.chosen[static_cast<std::size_t>(library)] = bytes;
}

namespace {

/// Frees the workspaces of a graph with it.
class WorkspacesOfGraphs final : public memory::CommandCheck {
 public:
  static void start() {
    static auto* const check = [] {
      auto* const made = new WorkspacesOfGraphs;  // leaked, as all checks are
      memory::checks::add(*made, memory::checks::kOwn);
      return made;
    }();
    static_cast<void>(check);
  }
  void graph_destroyed(CaptureId capture) override { clear_blas_workspaces_of(capture); }
};

}  // namespace

void use_blas_workspace(Stream& stream, BlasLibrary library) {
  if (is_unified()) library = BlasLibrary::kCublas;
  const auto bytes = blas_workspace_bytes(library);
  const Workspaces::Key key{&stream, handle_of_this_thread(stream.device()), library};
  auto& workspaces = Workspaces::get();
  {
    const std::lock_guard lock(workspaces.mutex);
    const auto known = workspaces.by_key.find(key);
    if (known != workspaces.by_key.end() && known->second.bytes >= bytes) return;
  }
  const auto tag = backend::set_allocation_tag(backend::kWorkspaceTag);
  const auto restore = c10::make_scope_exit([tag] { backend::set_allocation_tag(tag); });
  Workspace made{backend::allocate_for(stream, bytes), bytes, capture_of(stream)};
  if (made.capture != 0) WorkspacesOfGraphs::start();
  const std::lock_guard lock(workspaces.mutex);
  std::swap(workspaces.by_key[key], made);
}

void clear_blas_workspaces() {
  Workspaces::get().clear([](const Workspace&) { return true; });
}

void clear_blas_workspaces_of(CaptureId capture) {
  Workspaces::get().clear([&](const Workspace& each) { return each.capture == capture; });
}

}  // namespace openreg::ops::cuda_memory
