#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "memory/command_check.h"
#include "memory/memory_use.h"
#include "runtime/capture.h"
#include "runtime/command.h"
#include "runtime/happens_before.h"

namespace openreg::memory {

/// Finds errors in the use of device memory that a device hides (TORCH_OPENREG_DEBUG_MEMORY=1). See
/// Note [Debugging memory] in debugger.cpp for what it finds, and how. Thread safe.
class Debugger final : public CommandCheck {
 public:
  /// The process's debugger; nullptr unless it is enabled.
  static Debugger* get() noexcept { return instance_.load(std::memory_order_acquire); }
  /// Called before the first use of device memory.
  static void start_if_enabled();

  // Blocks have guards around them. allocated() and freed() enqueue commands on the block's stream.
  // before_allocation() throws what Stream::enqueue() throws. freed() neither waits for room in the
  // queue nor fails because the stream has been destroyed.
  std::string before_allocation(Stream& stream) override;
  std::size_t guard_bytes() const override;
  void allocated(const NewBlock& made) override;
  void freed(const void* address, Where* where) override;
  void abandoned(const void* address) override;
  const void* block_of(const void* address) override;
  void used_by_stream(const void* address, Stream& stream) override;
  void forgotten(const void* memory, std::size_t bytes) override;
  void overwritten(int device) override;

  // Memory that is not in a block of the device is ignored. They throw Error if a block has been
  // freed, or if its memory belonged to another one before that other streams may still use; for a
  // run, if memory that is not the graph's own has been freed since it was captured.
  void before_enqueue(Launch& launch) override;
  void before_replay(Launch& launch) override;
  void host_access(const char* op, const MemoryUse& memory) override;
  void enqueued(Launch& launch) override;
  void graph_destroyed(CaptureId capture) override;

  /// Throws Error if memory next to one of the device's blocks was overwritten. The device should
  /// be idle: writes of running commands may be missed.
  void host_waited(int device) override;

  /// Describes the blocks that have not been freed; empty if there are none.
  std::string describe_leaks();

 private:
  // The newest use of a block by a stream that is not the block's own.
  struct Use {
    const Stream* stream;
    SubmissionId submission;
    std::uint32_t thread;  // of the one that submitted it
    std::string block{};   // description, if it has been freed
  };
  using Uses = std::vector<Use>;
  // A block, from its allocation until all of its memory belongs to others.
  struct Record {
    std::byte* block = nullptr;
    std::size_t block_bytes = 0;
    std::size_t bytes = 0;  // that the program requested
    Stream* stream = nullptr;
    std::string allocated_at{};
    std::string freed_at{};
    bool captured = false;   // it is a graph's own, and is not checked
    bool guarded = false;    // the guards and the pattern of fresh memory are there
    bool filled = false;     // the pattern of freed memory is there
    std::size_t ranges = 0;  // in freed_, or being checked
    Uses foreign_uses{};
    // Of blocks that had the memory before, if the block's stream had not waited for them when the
    // memory became part of this one. So it may still be in use, and only its program's commands
    // may touch it, after a wait. Of a freed block: also its own.
    Uses earlier_uses{};
    std::vector<Stream*> recorded{};

    /// Whether the debugger's commands, on the block's stream, may touch the memory.
    bool is_ours() const noexcept { return earlier_uses.empty(); }
    void expect_unused(const char* kernel, const VectorClock& known) const;
    std::string describe() const;
  };
  struct Range {
    std::byte* end;
    std::uint64_t id;
  };
  struct Check {
    std::byte* begin;
    std::byte* end;
    std::uint64_t id;
  };
  struct Arguments;  // of the commands below

  static void run_prepare(const Kernel&, std::span<const std::byte> arguments);
  static void run_release(const Kernel&, std::span<const std::byte> arguments);
  static void run_check_freed(const Kernel&, std::span<const std::byte> arguments);
  static void skip_check_freed(std::span<const std::byte> arguments) noexcept;

  std::optional<Record> record_of(std::uint64_t id) OPENREG_EXCLUDES(mutex_);
  // A range of a freed block belongs to others now, or has been checked.
  void drop_range(std::uint64_t id) OPENREG_REQUIRES(mutex_);
  template <class F>
  void update(std::uint64_t id, F f) OPENREG_EXCLUDES(mutex_);
  void check_held(const char* kernel, std::span<const MemoryUse> memory, const VectorClock* known)
      OPENREG_EXCLUDES(mutex_);
  std::map<std::uint64_t, const char*> used_by(const Launch& launch) OPENREG_REQUIRES(mutex_);
  std::vector<Check> take_freed(std::byte* begin, std::byte* end) OPENREG_REQUIRES(mutex_);
  Uses uses_of(const std::vector<Check>& freed, const VectorClock& known) OPENREG_REQUIRES(mutex_);
  std::string broken_guard(const Record& record) const;

  static std::atomic<Debugger*> instance_;

  Mutex mutex_;  // never held while something is enqueued
  std::uint64_t last_id_ OPENREG_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uint64_t, Record> records_ OPENREG_GUARDED_BY(mutex_);
  // The records that graphs use, each with a kernel that uses it.
  std::map<CaptureId, std::map<std::uint64_t, const char*>> used_by_graphs_
      OPENREG_GUARDED_BY(mutex_);
  // By the address that the program was given.
  std::map<const std::byte*, std::uint64_t> held_ OPENREG_GUARDED_BY(mutex_);
  // By address; they do not overlap.
  std::map<std::byte*, Range> freed_ OPENREG_GUARDED_BY(mutex_);
};

}  // namespace openreg::memory
