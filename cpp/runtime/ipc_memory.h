#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/ipc_file.h"

namespace openreg {

/// Which parts of a device's memory lie in a file, so that other processes can have them too; the
/// rest is private. See Note [Memory moves under its users] in ipc_memory.cpp. It lives as long as
/// the process.
class IpcMemory {
 public:
  /// Of the device whose aperture this is. Throws Error if the system refuses the file.
  IpcMemory(void* aperture, std::size_t bytes, std::size_t granularity);
  IpcMemory(const IpcMemory&) = delete;
  IpcMemory& operator=(const IpcMemory&) = delete;

  IpcFile& file() noexcept { return file_; }

  /// From now on this memory of the aperture, and what lies beside it in the same multiples of the
  /// granularity, is the file's, at the same offsets. Its contents and addresses stay; whoever
  /// writes to it meanwhile is held up. Throws Error if the system refuses; some of it may have
  /// moved. Not thread safe.
  void share(void* memory, std::size_t bytes);
  /// The memory has left the aperture; both are multiples of the granularity.
  void forget(void* memory, std::size_t bytes) noexcept;

  /// Asked by a thread whose write to `address` was refused: if that is memory which moves or has
  /// moved, returns when the write can be tried again. Calls only what a signal handler may.
  static bool wait_until_moved(const void* address) noexcept;

 private:
  enum class Place : std::uint8_t { kPrivate, kMoving, kFile, kReturned };

  std::byte* begin_of(std::size_t piece) const noexcept;
  void move(std::size_t piece);
  bool copy_to_file(std::size_t piece) const noexcept;
  bool waits_for(const void* address) const noexcept;

  std::byte* const aperture_;
  const std::size_t bytes_;
  const std::size_t granularity_;
  IpcFile file_;
  std::unique_ptr<std::atomic<Place>[]> places_;  // of each multiple of the granularity
};

}  // namespace openreg
