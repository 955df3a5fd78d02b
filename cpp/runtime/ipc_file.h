#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

#include "runtime/mutex.h"

namespace openreg {

/// What another process finds an IpcFile by.
struct IpcFileName {
  int process = 0;          ///< one that has it open
  int descriptor = -1;      ///< under which
  std::uint64_t token = 0;  ///< of this file alone
  std::size_t bytes = 0;    ///< of memory in it
};

/// The memory of a device that its process shares with others: an anonymous file, and who uses
/// which block of it. See Note [Blocks that processes share] in ipc_file.cpp. A block is named by
/// its offset, a multiple of kBlockBytes. Thread safe.
class IpcFile {
 public:
  static constexpr std::size_t kBlockBytes = 512;

  /// A new file, with room for `bytes`, a multiple of the system's pages; takes memory where it is
  /// written to. Throws Error if the system refuses.
  explicit IpcFile(std::size_t bytes);
  /// The file that another process has by this name. Throws Error if that process is gone or cannot
  /// be looked into.
  explicit IpcFile(const IpcFileName& name);
  ~IpcFile();
  IpcFile(const IpcFile&) = delete;
  IpcFile& operator=(const IpcFile&) = delete;

  /// The name by which other processes find it while this one lives.
  IpcFileName name() const noexcept;
  int descriptor() const noexcept { return descriptor_; }

  /// Puts a part of it, in whole pages, behind `address`, in place of what is there; false if the
  /// system refuses.
  bool map_at(void* address, std::size_t offset, std::size_t bytes) const noexcept;
  /// Gives memory back to the system: it reads as zeros.
  void discard(std::size_t offset, std::size_t bytes) const noexcept;

  // --- Who uses a block ---

  /// A message that names the block is about to leave. The caller owns the block or holds it.
  /// Returns the block's generation, for receive().
  std::uint32_t send(std::size_t offset);
  /// The message has arrived. False, and the message was nothing, if it was received already and
  /// the block may have gone since. Who wants the block holds it before.
  bool receive(std::size_t offset, std::uint32_t generation) noexcept;
  /// This process, which is not the owner, uses the block until it has let go as often, or ends,
  /// however it does. Throws Error.
  void hold(std::size_t offset);
  void let_go(std::size_t offset) noexcept;
  /// Asked by the owner: neither is a message under way nor does another process hold the block,
  /// and what was sent before is received no more. False: nothing has changed.
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
