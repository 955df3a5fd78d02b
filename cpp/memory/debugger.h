#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "memory/device_heap.h"
#include "runtime/capture.h"
#include "runtime/command.h"
#include "runtime/event.h"
#include "runtime/mutex.h"

namespace openreg::memory {

/// Finds errors in the use of device memory that a device hides (TORCH_OPENREG_DEBUG_MEMORY=1). See
/// Note [Debugging memory] in debugger.cpp for what it finds, and how. Thread safe.
class Debugger {
 public:
  /// The process's debugger; nullptr unless it is asked for. The one thing that it costs where it
  /// is not.
  static Debugger* get() noexcept { return instance_.load(std::memory_order_acquire); }
  /// Called before the first use of device memory.
  static void start_if_asked();

  // What allocators ask of a DeviceHeap, of blocks with guards around them. `where` says in words
  // who asks: it comes back in the errors.
  DeviceHeap::Allocation allocate(DeviceHeap& heap, std::size_t bytes, Stream& stream,
                                  std::string where, const Context& context = {});
  DeviceHeap::Usage free(DeviceHeap& heap, void* address, std::string where,
                         const Context& context = {});
  void record_stream(DeviceHeap& heap, void* address, Stream& stream);
  std::vector<Stream*> streams_of(DeviceHeap& heap, const void* address);

  /// Around the submission of a command that uses `memory`, which begins where blocks do; what is
  /// not of this device's blocks is ignored. Throws Error, and submits nothing, if it has been
  /// freed. `enqueue` submits the command to `stream`.
  void submit(Stream& stream, const Kernel& kernel, std::span<const void* const> memory,
              const std::function<void()>& enqueue);

  /// Before a run of a graph: throws Error if memory that `capture` found in use, and that is not
  /// the graph's own, has been freed since.
  void check_graph(CaptureId capture);
  /// The graph is gone.
  void forget_graph(CaptureId capture);

  /// Throws Error if something was written beyond one of the device's blocks. The device should be
  /// idle: what runs now may go unnoticed.
  void check_guards(int device);

  /// Memory that is not of this device's blocks is there now, in place of what was freed. The
  /// device has been waited for since.
  void forget_freed(std::byte* begin, std::byte* end);
  /// A block that goes when nothing can be submitted any more.
  void forget(const void* address);
  /// The blocks that have not been freed, for reading; empty if there are none.
  std::string describe_leaks();

 private:
  struct Use {
    Stream* stream;
    std::shared_ptr<Event> done;
  };
  // A block, from its allocation until others have all of its memory.
  struct Record {
    std::byte* block = nullptr;
    std::size_t block_bytes = 0;
    std::size_t bytes = 0;  // that the program asked for
    Stream* stream = nullptr;
    std::string allocated_at{};
    std::string freed_at{};
    bool captured = false;            // it is a graph's own, and is not checked
    bool guarded = false;             // the guards and the pattern of fresh memory are there
    bool filled = false;              // the pattern of freed memory is there
    std::size_t ranges = 0;           // in freed_, or being checked
    std::vector<Use> foreign_uses{};  // the newest of each other stream
    std::vector<Stream*> recorded{};

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
  static const Kernel& prepare_kernel();
  static const Kernel& release_kernel();
  static const Kernel& check_freed_kernel();

  Record record_of(std::uint64_t id);
  void note_graph_use(CaptureId capture, const Kernel& kernel, std::span<const void* const> memory)
      OPENREG_EXCLUDES(mutex_);
  std::vector<Check> take_freed(std::byte* begin, std::byte* end) OPENREG_REQUIRES(mutex_);
  std::string broken_guard(const Record& record) const;

  static std::atomic<Debugger*> instance_;

  Mutex mutex_;  // never held while something is submitted
  std::uint64_t last_id_ OPENREG_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::uint64_t, Record> records_ OPENREG_GUARDED_BY(mutex_);
  // What graphs use: of each record the kernel that does.
  std::map<CaptureId, std::map<std::uint64_t, const Kernel*>> used_by_graphs_
      OPENREG_GUARDED_BY(mutex_);
  // By the address that the program has.
  std::map<const std::byte*, std::uint64_t> held_ OPENREG_GUARDED_BY(mutex_);
  // By address; they do not overlap.
  std::map<std::byte*, Range> freed_ OPENREG_GUARDED_BY(mutex_);
};

}  // namespace openreg::memory
