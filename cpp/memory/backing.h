#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace openreg {
class Stream;
}

namespace openreg::memory {

/// An event that was recorded on a stream: a point in its work.
class RecordedEvent {
 public:
  virtual ~RecordedEvent() = default;
  virtual bool completed() const noexcept = 0;
};

/// What a heap needs from its device.
class Backing {
 public:
  struct Addresses {
    std::uintptr_t begin;
    std::size_t bytes;
  };

  virtual ~Backing() = default;
  /// The range of addresses in which all memory of map() lies. Called once, after the first map().
  virtual Addresses addresses() const = 0;
  /// New memory of `bytes`, a multiple of kSegmentBytes; nullptr if the device has no room.
  virtual void* map(std::size_t bytes) = 0;
  /// Like map(), directly after memory of map() that ends at `end`; false if that is not possible.
  virtual bool extend(void* end, std::size_t bytes) = 0;
  /// Addresses without memory, for map_at(): as many pages of `page` bytes, a multiple of
  /// kSegmentBytes, as the device could have and an eighth more, or fewer if addresses are short; 0
  /// bytes if there are none.
  virtual Addresses reserve(std::size_t page) = 0;
  /// Gives addresses of reserve() back, all at once, when no memory is mapped there.
  virtual void unreserve(Addresses addresses) noexcept = 0;
  /// Like map(), at addresses of reserve(); false if the device has no room.
  virtual bool map_at(void* address, std::size_t bytes) = 0;
  /// Takes memory of map(), extend() and map_at() back, in any pieces of kSegmentBytes.
  virtual void unmap(void* memory, std::size_t bytes) noexcept = 0;
  /// Records an event after the work that `stream` has now. May throw, but does not wait.
  virtual std::unique_ptr<RecordedEvent> record_event(Stream& stream) = 0;
};

}  // namespace openreg::memory
