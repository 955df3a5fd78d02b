#pragma once

#include <cstddef>
#include <cstdint>

namespace openreg {

class IpcFile;

/// A part of a device's window that has memory.
struct Mapping {
  std::size_t offset;  ///< from the beginning of the window
  std::size_t bytes;
  const IpcFile* file;  ///< another process's file; null: the device's own, at the same offset
  std::size_t file_offset = 0;  ///< offset in the other process's file
};

/// Receives each change of what memory a device has mapped. Called with locks held: must not wait.
class MappingObserver {
 public:
  virtual ~MappingObserver() = default;
  virtual void mapped(const Mapping& mapping) noexcept = 0;
  virtual void unmapped(const Mapping& mapping) noexcept = 0;
};

/// The devices' memory. See Note [Two windows] in address_space.cpp and docs/architecture.md.
///
/// Each device has a *window*: a range of addresses without access, in which device pointers lie.
/// The memory is in the *apertures*, at a constant distance from the windows. Code that runs on the
/// device adds the distance. Host code that follows a device pointer faults.
///
/// One per process, reserved at first use, never released. All members are thread safe.
class AddressSpace {
 public:
  /// The process's address space; reserves it on the first call. Throws Error if the system refuses
  /// the addresses (for each device the capacity, or 1 GiB if that is less), if the settings are
  /// malformed, or if the size of the machine's memory is needed and unknown.
  static AddressSpace& get();

  /// The address space if it has been reserved, else nullptr. Never throws.
  static AddressSpace* get_if_reserved() noexcept;

  /// Device that `p` points into (interior pointers included), or -1 if it is not a device pointer.
  int device_of(const void* p) const noexcept {
    const auto offset = reinterpret_cast<std::uintptr_t>(p) - base_;
    return offset < windows_ ? static_cast<int>(offset >> window_shift_) : -1;
  }

  /// The address of a device pointer's memory for code that runs on the device. nullptr stays
  /// nullptr.
  void* aperture(const void* device_pointer) const noexcept {
    return device_pointer ? reinterpret_cast<void*>(
                                reinterpret_cast<std::uintptr_t>(device_pointer) + distance_)
                          : nullptr;
  }
  /// The device pointer of an address in an aperture: the reverse of aperture(). nullptr stays
  /// nullptr.
  void* window(const void* aperture_pointer) const noexcept {
    return aperture_pointer ? reinterpret_cast<void*>(
                                  reinterpret_cast<std::uintptr_t>(aperture_pointer) - distance_)
                            : nullptr;
  }

  /// Commits `bytes` (rounded up to kGranularity) of zeroed memory on `device` and returns its
  /// device pointer, aligned to kGranularity; nullptr if the device's capacity would be exceeded,
  /// if no free range of addresses is long enough, if the machine cannot hold the memory
  /// (machine_left()), or if the system refuses it. Throws Error if there is no such device.
  void* map(int device, std::size_t bytes);

  /// Like map(), directly after mapped memory that ends at `end`; false if map() would return
  /// nullptr or if the addresses are taken.
  bool extend(void* end, std::size_t bytes);

  /// Addresses of `device`, which must exist, for map_reserved(): `wanted` bytes, a multiple of
  /// `unit`, or fewer units if addresses are short, or 0 bytes. `unit` is a multiple of
  /// kGranularity.
  struct Reserved {
    std::uintptr_t begin;
    std::size_t bytes;
  };
  Reserved reserve_range(int device, std::size_t wanted, std::size_t unit);
  /// Frees addresses of reserve_range(), all at once, in which nothing is mapped.
  void unreserve_range(std::uintptr_t begin, std::size_t bytes) noexcept;
  /// Like map(), at addresses of reserve_range(), which are not mapped yet; false if map() would
  /// return nullptr. Both arguments are multiples of kGranularity.
  bool map_reserved(void* address, std::size_t bytes);

  /// Returns mapped memory to the system: all that map() and extend() mapped, or a part of it; both
  /// arguments are multiples of kGranularity. Ends the process if the memory is not mapped. The
  /// caller makes sure that no command still uses it. Reserved addresses stay reserved.
  void unmap(void* memory, std::size_t bytes) noexcept;

  /// Moves mapped memory, extended to whole multiples of kGranularity, to the file that shares it
  /// with other processes, at the same offsets as in the window. Contents and addresses stay the
  /// same. Does not wait for commands; Note [Memory moves under its users] says what may use the
  /// memory during the call. Throws Error if the system refuses.
  IpcFile& share(void* memory, std::size_t bytes);
  /// The file of share(), or nullptr if no memory of `device`, which must exist, has been shared.
  IpcFile* shared_file(int device) const noexcept;

  /// Maps this part of another process's file at free addresses of `device`, which must exist;
  /// `offset` and `bytes` are multiples of kGranularity. nullptr if no addresses are free, or if
  /// the system refuses. The memory does not count towards the device's capacity.
  void* map_foreign(int device, const IpcFile& file, std::size_t offset, std::size_t bytes);
  /// Unmaps all that one call of map_foreign() mapped.
  void unmap_foreign(void* memory, std::size_t bytes) noexcept;

  // --- Executors (executor/executor.h) ---

  /// From now on calls `observer` for each change of what `device`, which must exist, has mapped,
  /// and first for all that is mapped already. Null: calls none any more. With
  /// TORCH_OPENREG_EXECUTOR=process only.
  void observe(int device, MappingObserver* observer);

  /// Where the windows are.
  struct Layout {
    std::uintptr_t base;
    int window_shift;
    int devices;
    std::size_t capacity;
  };
  Layout layout() const noexcept { return {base_, window_shift_, devices(), capacity_}; }
  /// Makes the address space of an executor: windows as in its program, but not the memory, and
  /// apertures of its own. It is used for the translation of addresses, and for map_mirrored().
  /// Throws Error if the system refuses the addresses.
  static void become_mirror(const Layout& layout, int device);
  /// Maps a part of a file in the aperture of the mirror's device; false if the system refuses.
  bool map_mirrored(std::size_t offset, std::size_t bytes, int file,
                    std::size_t file_offset) noexcept;
  /// Unmaps what map_mirrored() has mapped.
  void unmap_mirrored(std::size_t offset, std::size_t bytes) noexcept;

  /// Where the window of `device`, which must exist, begins.
  std::uintptr_t window_begin(int device) const noexcept {
    return base_ + (static_cast<std::uintptr_t>(device) << window_shift_);
  }
  int devices() const noexcept { return static_cast<int>(windows_ >> window_shift_); }
  /// Bytes that a device can have mapped.
  std::size_t capacity() const noexcept { return capacity_; }
  /// Size of a device's range of addresses: a power of two and, if the system allows it, several
  /// times the capacity, so that memory can be extended.
  std::size_t window_bytes() const noexcept { return std::size_t{1} << window_shift_; }
  /// Bytes that `device`, which must exist, has mapped now.
  std::size_t mapped(int device) const noexcept;
  /// Device whose aperture `p` points into, or -1.
  int device_of_aperture(const void* p) const noexcept {
    return p == nullptr ? -1 : device_of(window(p));
  }
  /// For a signal handler: an access to the aperture at `address` has faulted. Makes the piece of
  /// kGranularity around it accessible if nothing is mapped there; false if the access cannot be
  /// tried again. Note [Illegal accesses].
  bool open_unmapped(const void* address, bool writes) noexcept;
  /// Undoes open_unmapped() for all pieces.
  void close_opened() noexcept;
  /// How much more memory of all devices the machine can hold, whatever their capacity. Takes
  /// milliseconds if much is mapped.
  std::size_t machine_left() const;
  /// Whether the machine can hold `bytes` more, which the caller takes if so. Much cheaper than
  /// machine_left().
  bool machine_grants(std::size_t bytes);

  static constexpr std::size_t kGranularity = std::size_t{2} << 20;

 private:
  AddressSpace();
  AddressSpace(const Layout& layout, int device);

  std::uintptr_t base_ = 0;      // start of device 0's window
  int window_shift_ = 0;         // a window has 2^window_shift_ bytes
  std::size_t windows_ = 0;      // bytes of all windows together
  std::uintptr_t distance_ = 0;  // from a window to its aperture
  int mirrored_ = -1;            // the executor's device
  std::size_t capacity_ = 0;
  struct Segments;
  Segments* segments_ = nullptr;  // leaked with the rest: tensors may outlive static destruction
};

}  // namespace openreg
