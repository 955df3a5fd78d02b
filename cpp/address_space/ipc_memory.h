#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "address_space/ipc_file.h"

namespace openreg {

/// Which parts of a device's memory lie in a file, so that other processes can map them too; the
/// rest is private. See Note [Memory moves under its users] in ipc_memory.cpp. It lives as long as
/// the process.
class IpcMemory {
 public:
  /// Makes the file for the device with this aperture. Throws Error if the system refuses it.
  IpcMemory(void* aperture, std::size_t bytes, std::size_t granularity);
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  IpcFile& file() noexcept { return file_; }

  /// Moves this memory of the aperture, extended to whole multiples of the granularity, to the
  /// file, at the same offsets. Contents and addresses stay the same; threads that write to the
  /// memory wait until it has moved. Throws Error if the system refuses; a part of the memory may
  /// have moved by then. Not thread safe.
  void share(void* memory, std::size_t bytes);
  /// Maps new memory of the file, zeroed, at `memory`; both arguments are multiples of the
  /// granularity. False if the system refuses.
  bool commit(void* memory, std::size_t bytes) noexcept;
  /// Called when memory of the aperture has been unmapped; both arguments are multiples of the
  /// granularity. Another thread may share other memory at the same time.
  void forget(void* memory, std::size_t bytes) noexcept;

  /// Called by a thread whose write to `address` faulted. If that memory is moving, has moved, or
  /// could not be moved, returns true as soon as the write can be tried again; else false.
  /// Async-signal-safe.
  static bool wait_until_moved(const void* address) noexcept;

 private:
  enum class PieceState : std::uint8_t { kPrivate, kMoving, kFile, kReturned };

  std::byte* begin_of(std::size_t piece) const noexcept;
  void move(std::size_t piece);
  bool copy_to_file(std::size_t piece) const noexcept;
  bool waits_for(const void* address) const noexcept;

  std::byte* const aperture_;
  const std::size_t bytes_;
  const std::size_t granularity_;
  IpcFile file_;
  std::unique_ptr<std::atomic<PieceState>[]> states_;  // of each multiple of the granularity
};

}  // namespace openreg
