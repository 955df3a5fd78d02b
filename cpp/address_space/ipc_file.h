#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "base/mutex.h"

namespace openreg {

/// Maps a part of a file, in whole pages, at `address`, in place of what is mapped there; false if
/// the system refuses.
bool map_file_at(void* address, std::size_t bytes, int descriptor, std::size_t offset) noexcept;

/// Identifies an IpcFile for other processes.
struct IpcFileName {
  int process = 0;          ///< number of a process that has the file open
  int descriptor = -1;      ///< descriptor of the file in that process
  std::uint64_t token = 0;  ///< unique to this file
  std::size_t bytes = 0;    ///< size of its memory
};

/// The memory of a device that its process shares with others: an anonymous file, which also
/// records which processes use which block. See Note [Blocks that processes share] in ipc_file.cpp.
/// A block is identified by its offset, a multiple of kBlockBytes. Thread safe.
class IpcFile {
 public:
  static constexpr std::size_t kBlockBytes = 512;

  /// Makes a file with room for `bytes`, a multiple of the system's page size; pages take memory
  /// when they are first written. Throws Error if the system refuses.
  explicit IpcFile(std::size_t bytes);
  /// Opens another process's file. Throws Error if that process has ended or cannot be accessed.
  explicit IpcFile(const IpcFileName& name);
  ~IpcFile();
  IpcFile(const IpcFile&) = delete;
  IpcFile& operator=(const IpcFile&) = delete;

  /// The name by which other processes find it while this one lives.
  IpcFileName name() const noexcept;
  int descriptor() const noexcept { return descriptor_; }

  /// Maps a part of it, in whole pages, at `address`, in place of what is mapped there; false if
  /// the system refuses.
  bool map_at(void* address, std::size_t offset, std::size_t bytes) const noexcept;
  /// Returns memory to the system; it reads as zeros afterwards.
  void discard(std::size_t offset, std::size_t bytes) const noexcept;

  // --- Use of blocks ---

  /// Called before a message that names the block is sent. The caller owns the block or holds it.
  /// Returns the block's generation, for receive().
  std::uint32_t send(std::size_t offset);
  /// Called when the message arrives; a receiver that wants the block calls hold() first. False,
  /// and the message is void, if it was received before and the block may have been freed since.
  bool receive(std::size_t offset, std::uint32_t generation) noexcept;
  /// Marks the block as used by this process, which is not the owner, until release() has been
  /// called as often as hold(), or the process ends in any way. Throws Error if the system refuses
  /// the lock.
  void hold(std::size_t offset);
  void release(std::size_t offset) noexcept;
  /// Called by the owner, by one thread at a time, before it reuses the block. True: no message is
  /// under way, no other process holds the block, and messages sent before can no longer be
  /// received. False: nothing has changed.
  bool retire(std::size_t offset) noexcept;

 private:
  using Word = std::atomic<std::uint64_t>;

  void map_words();
  Word& word(std::size_t offset) noexcept { return words_[offset / kBlockBytes]; }
  bool lock(std::size_t offset, int type) const noexcept;
  bool is_held_elsewhere(std::size_t offset) const noexcept;

  std::size_t bytes_;
  int descriptor_;
  std::uint64_t token_ = 0;
  Word* words_ = nullptr;  // in the file
  Mutex mutex_;
  std::map<std::size_t, int> holds_ OPENREG_GUARDED_BY(mutex_);  // of this process, by offset
};

}  // namespace openreg
