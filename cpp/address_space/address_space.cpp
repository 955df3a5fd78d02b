#include "address_space/address_space.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <exception>
#include <iterator>
#include <map>
#include <string>
#include <system_error>

#include "address_space/fault_message.h"
#include "address_space/ipc_file.h"
#include "address_space/ipc_memory.h"
#include "address_space/mapped_memory.h"
#include "address_space/range_allocator.h"
#include "base/error.h"
#include "base/host_memory.h"
#include "base/mutex.h"
#include "base/quantity.h"
#include "base/round_up.h"
#include "base/settings.h"

namespace openreg {

// Note [Two windows]
// A device pointer must be a real address, because PyTorch does arithmetic on it, yet the host must
// not be able to use it. So every device address exists twice:
//
//   base_                                   base_ + distance_
//   | window 0 | window 1 | ... |           | aperture 0 | aperture 1 | ... |
//     never accessible: what data_ptr()       the memory, committed segment by segment: what
//     returns; a host that follows it faults  kernels use, after adding distance_
//
// The protection costs nothing per operation and needs no lock, and the questions "which device's
// pointer is this?" and "where is its memory?" are arithmetic on two constants. All of it is one
// reservation of addresses without memory. The size of a window is a power of two, so that a shift
// gives the device.

namespace {

constexpr std::size_t kSmallestWindow = std::size_t{1} << 30;
constexpr std::size_t kGranularity = AddressSpace::kGranularity;
static_assert(kGranularity == MappedMemory::kPiece);
// A window has room for this many segments, each of which can grow up to the capacity.
constexpr std::size_t kRoom = 8;
// If devices do not compute, each stream may have ranges of addresses for all memory.
constexpr std::size_t kIdleRoom = 32;
constexpr std::size_t kSmallestIdleWindow = std::size_t{1} << 40;
constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

std::atomic<AddressSpace*> g_address_space{nullptr};

// Reserves `bytes` of addresses without access, aligned to kGranularity for huge pages; 0 if the
// system refuses.
std::uintptr_t reserve(std::size_t bytes) {
  void* const block = mmap(nullptr, bytes + kGranularity, PROT_NONE, kReserved, -1, 0);
  if (block == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(block);
  const auto aligned = (begin + kGranularity - 1) / kGranularity * kGranularity;
  if (aligned > begin) munmap(block, aligned - begin);
  const auto end = aligned + bytes;
  munmap(reinterpret_cast<void*>(end), begin + bytes + kGranularity - end);
  return aligned;
}

bool commit(void* address, std::size_t bytes) {
  // Unlike the reservation, this memory is accounted for: a system that does not overcommit refuses
  // here, not at the first access.
  // Without computing hardly anything of it is touched: it is not accounted for, and pages are
  // small.
  const bool accounted = computes();
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (accounted ? 0 : MAP_NORESERVE);
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED) return false;
#ifdef MADV_HUGEPAGE
  if (accounted) madvise(address, bytes, MADV_HUGEPAGE);
#endif
#ifdef MADV_DONTDUMP
  // A core file is about the host program, and would have the device's size.
  madvise(address, bytes, MADV_DONTDUMP);
#endif
#ifdef MADV_DONTFORK
  // A forked child cannot use the device. If the memory were copied on write, the parent's next
  // writes would take thirty times as long, and the pages would be small from then on.
  madvise(address, bytes, MADV_DONTFORK);
#endif
  return true;
}

void decommit(void* address, std::size_t bytes) noexcept {
  if (mmap(address, bytes, PROT_NONE, kReserved | MAP_FIXED, -1, 0) != MAP_FAILED) return;
  // The kernel has no room for one more mapping. The memory can still be returned; the range stays
  // accessible until it is used again.
  madvise(address, bytes, MADV_DONTNEED);
}

}  // namespace

struct AddressSpace::Segments {
  struct Device {
    Device(std::uintptr_t window, std::size_t bytes)
        : window(window), ranges(window, bytes, kGranularity) {}

    // Commits memory at `aperture` for a range that has been taken; gives the range back on
    // failure, unless it is reserved.
    bool commit_taken(MappedMemory& all, std::uintptr_t address, void* aperture, std::size_t bytes)
        OPENREG_REQUIRES(mutex) {
      const auto map = [&] {
        const MappedMemory::Change change(all);
        const bool done = in_file ? ipc.load()->commit(aperture, bytes) : commit(aperture, bytes);
        if (done) all.note_mapped(aperture, bytes, MappedMemory::Owner::kDevice);
        return done;
      };
      if ((computes() && !all.budget().grants(bytes)) || !map()) {
        free_range(address, bytes);
        return false;
      }
      mapped += bytes;
      if (in_file) note_mapped({.offset = address - window, .bytes = bytes, .file = nullptr});
      return true;
    }
    bool is_reserved(std::uintptr_t address) const OPENREG_REQUIRES(mutex) {
      const auto after = reserved.upper_bound(address);
      return after != reserved.begin() &&
             address - std::prev(after)->first < std::prev(after)->second;
    }
    void free_range(std::uintptr_t address, std::size_t bytes) OPENREG_REQUIRES(mutex) {
      if (!is_reserved(address)) ranges.free(address, bytes);
    }
    void note_mapped(const Mapping& mapping) OPENREG_REQUIRES(mutex) {
      mappings.emplace(mapping.offset, mapping);
      if (observer) observer->mapped(mapping);
    }
    // Of what has been mapped at once or, as the device's own memory can be, in parts.
    void note_unmapped(std::size_t offset, std::size_t bytes) OPENREG_REQUIRES(mutex);

    const std::uintptr_t window;
    bool in_file = false;  // all of its memory, from the beginning: an executor maps it, too
    Mutex mutex;
    std::map<std::size_t, Mapping> mappings OPENREG_GUARDED_BY(mutex);  // with in_file, by offset
    MappingObserver* observer OPENREG_GUARDED_BY(mutex) = nullptr;
    RangeAllocator ranges OPENREG_GUARDED_BY(mutex);  // of the window
    // Addresses of reserve_range(), with their sizes.
    std::map<std::uintptr_t, std::size_t> reserved OPENREG_GUARDED_BY(mutex);
    std::size_t mapped OPENREG_GUARDED_BY(mutex) = 0;  // bytes
    Mutex sharing;                                     // held while memory moves to the file
    std::atomic<IpcMemory*> ipc{nullptr};              // leaked with the rest
  };

  Segments(std::uintptr_t apertures, std::size_t bytes) : memory(apertures, bytes) {}

  std::deque<Device> devices;
  MappedMemory memory;
};

void AddressSpace::Segments::Device::note_unmapped(std::size_t offset, std::size_t bytes) {
  const std::size_t end = offset + bytes;
  auto next = mappings.upper_bound(offset);
  if (next != mappings.begin()) --next;
  while (next != mappings.end() && next->first < end) {
    const Mapping whole = next->second;
    const std::size_t whole_end = whole.offset + whole.bytes;
    if (whole_end <= offset) {
      ++next;
      continue;
    }
    next = mappings.erase(next);
    if (whole.offset < offset)
      mappings.emplace(whole.offset, Mapping{whole.offset, offset - whole.offset, nullptr});
    if (whole_end > end) mappings.emplace(end, Mapping{end, whole_end - end, nullptr});
  }
  if (observer) observer->unmapped({.offset = offset, .bytes = bytes, .file = nullptr});
}

AddressSpace& AddressSpace::get() {
  static AddressSpace& space = []() -> AddressSpace& {
    if (auto* const mirror = get_if_reserved()) return *mirror;
    auto* const created = new AddressSpace;
    g_address_space.store(created, std::memory_order_release);
    if (settings().fault_message) install_fault_message();
    return *created;
  }();
  return space;
}

AddressSpace* AddressSpace::get_if_reserved() noexcept {
  return g_address_space.load(std::memory_order_acquire);
}

AddressSpace::AddressSpace() {
  const auto devices = static_cast<std::size_t>(settings().devices);
  const std::size_t otherwise =
      computes() ? default_device_memory(settings().devices) : kIdleDeviceMemory;
  const std::size_t memory = settings().memory.value_or(otherwise);
  capacity_ = std::max(memory / kGranularity * kGranularity, kGranularity);

  const std::size_t wanted = std::bit_ceil(capacity_);
  std::size_t window = std::max(kIdleRoom * wanted, kSmallestIdleWindow);
  if (!computes()) base_ = reserve(2 * devices * window);
  if (base_ == 0) base_ = reserve(2 * devices * (window = kRoom * wanted));
  if (base_ == 0) window = wanted;
  while (base_ == 0 && (base_ = reserve(2 * devices * window)) == 0) {
    const int reason = errno;
    if (window <= kSmallestWindow) {
      throw Error("openreg: cannot reserve " + format_size(2 * devices * window) +
                  " of address space for " + format_count(devices, "device") + ": " +
                  std::generic_category().message(reason) +
                  "; raise `ulimit -v`, or lower TORCH_OPENREG_DEVICES or TORCH_OPENREG_MEMORY");
    }
    window /= 2;
  }
  capacity_ = std::min(capacity_, window);
  window_shift_ = std::countr_zero(window);
  windows_ = distance_ = devices * window;
  if (window < wanted) {
    std::fprintf(stderr,
                 "openreg: only %s of address space could be reserved per device, instead of %s; "
                 "each device has %s of memory; raise `ulimit -v` for more\n",
                 format_size(window).c_str(), format_size(wanted).c_str(),
                 format_size(capacity_).c_str());
  }

  if (settings().memory && computes()) report_capacity_beyond_machine(capacity_);

  segments_ = new Segments(base_ + distance_, windows_);
  for (std::size_t device = 0; device < devices; ++device) {
    auto& made = segments_->devices.emplace_back(base_ + device * window, window);
    if (!settings().executor_process) continue;
    made.in_file = true;
    made.ipc = new IpcMemory(aperture(reinterpret_cast<void*>(made.window)), window, kGranularity);
  }
}

// The apertures of all devices are reserved, though memory is mapped in one: otherwise something
// else could lie there, and be taken for a device's memory.
AddressSpace::AddressSpace(const Layout& layout, int device)
    : base_(layout.base),
      window_shift_(layout.window_shift),
      windows_(static_cast<std::size_t>(layout.devices) << layout.window_shift),
      mirrored_(device),
      capacity_(layout.capacity) {
  const auto apertures = reserve(windows_);
  if (apertures == 0) {
    throw Error("cannot reserve " + format_size(windows_) + " of address space: " +
                std::generic_category().message(errno) + "; raise `ulimit -v`");
  }
  distance_ = apertures - base_;
}

void AddressSpace::become_mirror(const Layout& layout, int device) {
  g_address_space.store(new AddressSpace(layout, device), std::memory_order_release);
}

bool AddressSpace::map_mirrored(std::size_t offset, std::size_t bytes, int file,
                                std::size_t file_offset) noexcept {
  void* const place = aperture(reinterpret_cast<void*>(window_begin(mirrored_) + offset));
  return map_file_at(place, bytes, file, file_offset);
}

void AddressSpace::unmap_mirrored(std::size_t offset, std::size_t bytes) noexcept {
  decommit(aperture(reinterpret_cast<void*>(window_begin(mirrored_) + offset)), bytes);
}

void AddressSpace::observe(int device, MappingObserver* observer) {
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const LockGuard lock(owner.mutex);
  owner.observer = observer;
  if (!observer) return;
  for (const auto& [offset, mapping] : owner.mappings) observer->mapped(mapping);
}

void* AddressSpace::map(int device, std::size_t bytes) {
  if (device < 0 || device >= devices()) {
    throw Error("openreg: device index out of range (got " + std::to_string(device) +
                ", expected 0 to " + std::to_string(devices() - 1) + ")");
  }
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const LockGuard lock(owner.mutex);
  if (bytes > capacity_ - owner.mapped) return nullptr;
  // The capacity and what is mapped are multiples of the granularity: rounding up stays below the
  // capacity.
  const std::size_t rounded = std::max(round_up(bytes, kGranularity), kGranularity);
  if (rounded > capacity_ - owner.mapped) return nullptr;
  const auto address = owner.ranges.take(rounded, capacity_);
  if (address == 0) return nullptr;
  void* const memory = reinterpret_cast<void*>(address);
  return owner.commit_taken(segments_->memory, address, aperture(memory), rounded) ? memory
                                                                                   : nullptr;
}

bool AddressSpace::extend(void* end, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(end);
  const int device = device_of(reinterpret_cast<void*>(address - 1));
  if (device < 0) return false;
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const LockGuard lock(owner.mutex);
  if (bytes > capacity_ - owner.mapped) return false;
  const std::size_t rounded = round_up(bytes, kGranularity);
  return rounded <= capacity_ - owner.mapped && owner.ranges.take_at(address, rounded) &&
         owner.commit_taken(segments_->memory, address, aperture(end), rounded);
}

AddressSpace::Reserved AddressSpace::reserve_range(int device, std::size_t wanted,
                                                   std::size_t unit) {
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const LockGuard lock(owner.mutex);
  const auto [begin, bytes] = owner.ranges.take_up_to(wanted, unit);
  if (bytes > 0) owner.reserved.emplace(begin, bytes);
  return {begin, bytes};
}

void AddressSpace::unreserve_range(std::uintptr_t begin, std::size_t bytes) noexcept {
  const int device = device_of(reinterpret_cast<void*>(begin));
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const LockGuard lock(owner.mutex);
  owner.reserved.erase(begin);
  owner.ranges.free(begin, bytes);
}

bool AddressSpace::map_reserved(void* address, std::size_t bytes) {
  auto& owner = segments_->devices[static_cast<std::size_t>(device_of(address))];
  const LockGuard lock(owner.mutex);
  return bytes <= capacity_ - owner.mapped &&
         owner.commit_taken(segments_->memory, reinterpret_cast<std::uintptr_t>(address),
                            aperture(address), bytes);
}

void AddressSpace::unmap(void* memory, std::size_t bytes) noexcept {
  const int device = device_of(memory);
  if (device < 0) std::terminate();
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const LockGuard lock(owner.mutex);
  // Continuing would unmap memory that is in use elsewhere.
  if (!owner.ranges.is_taken(address, bytes)) std::terminate();
  {
    const MappedMemory::Change change(segments_->memory);
    decommit(aperture(memory), bytes);
    segments_->memory.note_unmapped(aperture(memory), bytes, MappedMemory::Owner::kDevice);
  }
  if (auto* const ipc = owner.ipc.load()) ipc->forget(aperture(memory), bytes);
  if (owner.in_file) owner.note_unmapped(address - owner.window, bytes);
  owner.free_range(address, bytes);
  owner.mapped -= bytes;
}

IpcFile& AddressSpace::share(void* memory, std::size_t bytes) {
  const int device = device_of(memory);
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const LockGuard lock(owner.sharing);
  auto* ipc = owner.ipc.load();
  if (ipc == nullptr) {
    void* const begin = aperture(reinterpret_cast<void*>(window_begin(device)));
    owner.ipc = ipc = new IpcMemory(begin, window_bytes(), kGranularity);
  }
  ipc->share(aperture(memory), bytes);
  return ipc->file();
}

IpcFile* AddressSpace::shared_file(int device) const noexcept {
  auto* const ipc = segments_->devices[static_cast<std::size_t>(device)].ipc.load();
  return ipc == nullptr ? nullptr : &ipc->file();
}

void* AddressSpace::map_foreign(int device, const IpcFile& file, std::size_t offset,
                                std::size_t bytes) {
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const LockGuard lock(owner.mutex);
  // It does not grow, so the lowest addresses will do.
  const auto address = owner.ranges.take(bytes, window_bytes());
  if (address == 0) return nullptr;
  void* const memory = reinterpret_cast<void*>(address);
  const auto map = [&] {
    const MappedMemory::Change change(segments_->memory);
    const bool done = file.map_at(aperture(memory), offset, bytes);
    if (done)
      segments_->memory.note_mapped(aperture(memory), bytes, MappedMemory::Owner::kOtherProcess);
    return done;
  };
  if (!map()) {
    owner.ranges.free(address, bytes);
    return nullptr;
  }
  if (owner.in_file) {
    owner.note_mapped(
        {.offset = address - owner.window, .bytes = bytes, .file = &file, .file_offset = offset});
  }
  return memory;
}

void AddressSpace::unmap_foreign(void* memory, std::size_t bytes) noexcept {
  auto& owner = segments_->devices[static_cast<std::size_t>(device_of(memory))];
  const LockGuard lock(owner.mutex);
  {
    const MappedMemory::Change change(segments_->memory);
    decommit(aperture(memory), bytes);
    segments_->memory.note_unmapped(aperture(memory), bytes, MappedMemory::Owner::kOtherProcess);
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  if (owner.in_file) owner.note_unmapped(address - owner.window, bytes);
  owner.ranges.free(address, bytes);
}

std::size_t AddressSpace::mapped(int device) const noexcept {
  auto& owner = segments_->devices[static_cast<std::size_t>(device)];
  const LockGuard lock(owner.mutex);
  return owner.mapped;
}

bool AddressSpace::open_unmapped(const void* address, bool writes) noexcept {
  return segments_ != nullptr &&
         segments_->memory.open(address, writes) != MappedMemory::OpenResult::kRefused;
}

void AddressSpace::close_opened() noexcept {
  if (segments_ != nullptr) segments_->memory.close_opened();
}

std::size_t AddressSpace::machine_left() const { return segments_->memory.budget().left(); }

bool AddressSpace::machine_grants(std::size_t bytes) {
  return segments_->memory.budget().grants(bytes);
}

}  // namespace openreg
