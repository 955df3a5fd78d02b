#include "backend/ipc_imports.h"

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "address_space/address_space.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/quantity.h"
#include "base/thread.h"
#include "memory/command_check.h"
#include "runtime/happens_before.h"
#include "runtime/process.h"
#include "runtime/stream.h"
#include "runtime/stream_pool.h"
#include "slot.h"

namespace openreg::backend {

namespace {

constexpr std::size_t kPiece = AddressSpace::kGranularity;

// A part of another process's memory, in whole pieces, at addresses of this one.
struct Mapping {
  Mapping(const IpcFile& file, int device, std::size_t offset, std::size_t end)
      : device(device),
        offset(offset / kPiece * kPiece),
        bytes((end + kPiece - 1) / kPiece * kPiece - this->offset),
        address(static_cast<std::byte*>(
            AddressSpace::get().map_foreign(device, file, this->offset, bytes))) {
    if (address == nullptr) {
      throw Error("openreg: cannot map " + format_size(bytes) + " of another process's memory on " +
                  device_name(device) +
                  "; free received tensors, or raise `ulimit -v` or vm.max_map_count");
    }
    // Memory that was freed at these addresses has nothing to do with the memory that is there now.
    memory::checks::notify(&memory::CommandCheck::forgotten, address, bytes);
  }
  ~Mapping() { AddressSpace::get().unmap_foreign(address, bytes); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool covers(int on, std::size_t from, std::size_t to) const {
    return device == on && offset <= from && to <= offset + bytes;
  }

  const int device;
  const std::size_t offset;
  const std::size_t bytes;
  std::byte* const address;
};

// A file of another process, and its mapped parts: small blocks share mappings.
struct Source {
  explicit Source(const IpcFileName& name) : file(name) {}

  std::shared_ptr<Mapping> map(int device, std::size_t from, std::size_t to) {
    std::erase_if(mappings, [](const auto& entry) { return entry.second.expired(); });
    const auto [begin, end] = mappings.equal_range(from / kPiece);
    for (auto it = begin; it != end; ++it) {
      if (auto mapping = it->second.lock(); mapping && mapping->covers(device, from, to))
        return mapping;
    }
    auto mapping = std::make_shared<Mapping>(file, device, from, to);
    mappings.emplace(from / kPiece, mapping);
    return mapping;
  }

  IpcFile file;
  std::multimap<std::size_t, std::weak_ptr<Mapping>> mappings;  // by their first piece
};

// A block of another process that a storage in this process owns. The members are destroyed in the
// opposite order.
struct Import {
  Import(std::shared_ptr<Source> from, std::size_t offset)
      : source(std::move(from)), offset(offset) {
    source->file.hold(offset);
  }
  ~Import() { source->file.release(offset); }
  Import(const Import&) = delete;
  Import& operator=(const Import&) = delete;

  const std::shared_ptr<Source> source;
  const std::size_t offset;
  std::shared_ptr<Mapping> mapping{};
};

// A list, because two lists can be joined even if there is no memory.
using Leaving = std::list<std::unique_ptr<Import>>;

struct Imports {
  Mutex mutex;
  std::map<std::uint64_t, std::weak_ptr<Source>> sources OPENREG_GUARDED_BY(mutex);  // by token
  Leaving leaving OPENREG_GUARDED_BY(mutex);
  bool has_thread OPENREG_GUARDED_BY(mutex) = false;
};

// Leaked: tensors may outlive static destruction.
Imports& imports() {
  static auto& all = *new Imports;
  return all;
}

std::shared_ptr<Source> source_of(const IpcFileName& name) OPENREG_REQUIRES(imports().mutex) {
  auto& sources = imports().sources;
  if (auto source = sources[name.token].lock()) return source;
  std::erase_if(sources, [](const auto& entry) { return entry.second.expired(); });
  auto source = std::make_shared<Source>(name);
  sources[name.token] = source;
  return source;
}

bool is_idle(int device) {
  const auto streams = StreamPool::of(device).streams();
  return std::ranges::all_of(streams, [](const StreamImpl* stream) { return stream->drained(); });
}

Leaving take_leaving() {
  const LockGuard lock(imports().mutex);
  return std::exchange(imports().leaving, {});
}

// Waits without the lock, and releases with it, because that changes the sources.
void release(Leaving leaving) {
  try {
    const InternalWaitScope internal;
    for (const auto& import : leaving) drain_device(import->mapping->device);
  } catch (...) {  // an interrupt, no memory, or the process ends: the blocks are still in use
    const LockGuard lock(imports().mutex);
    imports().leaving.splice(imports().leaving.end(), leaving);
    throw;
  }
  const LockGuard lock(imports().mutex);
  leaving.clear();
}

void release_until_none_is_left() {
  for (;;) {
    auto leaving = take_leaving();
    if (leaving.empty()) {
      const LockGuard lock(imports().mutex);
      if (!imports().leaving.empty()) continue;
      imports().has_thread = false;
      return;
    }
    try {
      release(std::move(leaving));
    } catch (const std::exception&) {
      // Does not try again at once, because the failure may persist: the next block that is freed,
      // or release_imports(), will do it, as if no thread had started.
      const LockGuard lock(imports().mutex);
      imports().has_thread = false;
      return;
    }
  }
}

// The deleter of imported memory, which queued work may still use. The caller need not wait for
// that work, and could not if it is a command.
void delete_import(void* context) {
  if (in_bad_fork() || is_shut_down()) return;
  std::unique_ptr<Import> import(static_cast<Import*>(context));
  const bool idle = is_idle(import->mapping->device);
  const LockGuard lock(imports().mutex);
  if (idle) return import.reset();
  imports().leaving.push_back(std::move(import));
  if (std::exchange(imports().has_thread, true)) return;
  try {
    start_detached_thread("openreg-ipc", &release_until_none_is_left);
  } catch (const std::system_error&) {
    imports().has_thread = false;  // the next block that is freed, or release_imports(), will do it
  }
}

}  // namespace

void refuse_second_reading() {
  throw Error(
      "openreg: a message with a tensor was read a second time, when its memory may have been "
      "freed; send the tensor once for each receiver");
}

c10::DataPtr import_block(const IpcFileName& name, int device, std::size_t offset,
                          std::size_t bytes, std::uint32_t generation) {
  const LockGuard lock(imports().mutex);
  auto import = std::make_unique<Import>(source_of(name), offset);
  if (!import->source->file.receive(offset, generation)) refuse_second_reading();
  import->mapping = import->source->map(device, offset, offset + bytes);
  auto* const address = import->mapping->address + (offset - import->mapping->offset);
  memory::checks::notify(&memory::CommandCheck::reused, address, bytes,
                         memory::BlockKind::kImported);
  return {address, import.release(), &delete_import,
          c10::Device(kDeviceType, static_cast<c10::DeviceIndex>(device))};
}

void withdraw_from_owner(const IpcFileName& name, std::size_t offset,
                         std::uint32_t generation) noexcept {
  try {
    const LockGuard lock(imports().mutex);
    source_of(name)->file.receive(offset, generation);
  } catch (const std::exception&) {  // the owner has ended, or no file can be opened
  }
}

Imported imported_from(const c10::DataPtr& data) noexcept {
  if (data.get_deleter() != &delete_import) return {nullptr, 0};
  const auto* const import = static_cast<const Import*>(data.get_context());
  return {&import->source->file, import->offset};
}

void release_imports() { release(take_leaving()); }

}  // namespace openreg::backend
