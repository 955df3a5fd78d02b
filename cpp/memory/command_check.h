#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/access_history.h"
#include "memory/device_heap.h"
#include "memory/memory_use.h"
#include "runtime/capture.h"
#include "runtime/command.h"
#include "runtime/faulty_command.h"
#include "runtime/graph.h"
#include "runtime/vector_clock.h"

namespace openreg::memory {

/// A command that is about to be enqueued, or a run of a graph. An object of the calling thread.
struct Launch {
  /// What happens before it, with its own submission; taken at the first call. Empty unless order
  /// is tracked (HappensBefore). In a capture: what its node comes after, as far as a check finds
  /// out.
  VectorClock& known();

  Stream& stream;
  const char* name;                     ///< static
  std::span<const MemoryUse> memory{};  ///< of a run: as far as the race detector knows it
  std::vector<MemoryUse> of_graph{};    ///< that `memory` of a run refers to
  std::vector<Accessor> by{};           ///< of each memory, by the race detector
  // What is enqueued, which a check may replace; null for a collective and a run.
  const Kernel* kernel = nullptr;
  std::span<const std::byte> arguments{};
  std::vector<std::byte> replaced{};  ///< for the arguments of another kernel
  const Kernel* idle = nullptr;       ///< a kernel that a check has put there: see enqueue_idle()
  bool idle_writes = false;
  // Of a run:
  CaptureId graph = 0;           ///< the capture that the graph is the result of; 0: a command
  const Stream* last = nullptr;  ///< of the previous run, which comes before; null: there is none
  const Graph* nodes = nullptr;
  NodeFaults faults{};  ///< set by the checks

  const CaptureId capture = capture_of(stream);  ///< it becomes a node of; 0: it runs
  std::optional<VectorClock> order{};            ///< known()
};

/// Describes the calling program for an error, as text; may be slow.
using Where = std::string();

/// A block of the device's memory that has been allocated.
struct NewBlock {
  std::byte* block;  ///< of the heap, with guard bytes
  std::size_t block_bytes;
  std::byte* address;  ///< the program's
  std::size_t bytes;   ///< that the program requested
  Stream& stream;
  Where* where;
};

/// Something that is asked about every use of memory, and may refuse it by an exception: the memory
/// debugger, the race detector, fault injection. By default it does nothing. Another check is one
/// source file that derives from this and calls checks::add(). Called by any thread, so the object
/// is never destroyed.
class CommandCheck {
 public:
  // Before, and after, memory of the device is allocated. A text: the allocation fails for that
  // reason as if memory had run out.
  virtual std::string before_allocation(Stream&) { return {}; }
  /// To be left free on either side of each block; always the same.
  virtual std::size_t guard_bytes() const { return 0; }
  virtual void allocated(const NewBlock&) {}
  /// Before a block is freed; wrong addresses are refused afterwards.
  virtual void freed(const void* /*address*/, Where*) {}
  /// The program will never free it.
  virtual void abandoned(const void* /*address*/) {}
  /// The heap's block of the program's address.
  virtual const void* block_of(const void* address) { return address; }
  /// The memory is not reused before the work that the stream has when it is freed (record_stream).
  virtual void used_by_stream(const void* /*address*/, Stream&) {}
  /// Pinned memory, or that of another process, begins another life: its owner has waited for what
  /// used it.
  virtual void reused(const void* /*memory*/, std::size_t /*bytes*/, BlockKind) {}
  /// All that used the memory has completed, and it serves no tensor. Called under locks.
  virtual void forgotten(const void* /*memory*/, std::size_t /*bytes*/) {}
  /// The device's memory has new contents.
  virtual void overwritten(int /*device*/) {}

  // What throws is not enqueued. Each call is followed by enqueued(), or by withdrawn() if it has
  // thrown, or something after it.
  virtual void before_enqueue(Launch&) {}
  virtual void before_replay(Launch&) {}
  virtual void enqueued(Launch&) {}
  virtual void withdrawn(Launch&) {}
  /// The graph has been destroyed.
  virtual void graph_destroyed(CaptureId) {}

  /// The calling thread accesses the memory itself, for the operator `op`.
  virtual void host_access(const char* /*op*/, const MemoryUse&) {}
  /// The calling thread has waited for the device, or for a stream of it.
  virtual void host_waited(int /*device*/) {}

 protected:
  CommandCheck() = default;
  ~CommandCheck() = default;
};

/// The process's checks, asked in the order of their places.
namespace checks {

/// A place for each check; from kOwn to kPlaces - 1 for others.
enum Place : unsigned { kValues, kFaults, kRaces, kPinned, kMemory, kOwn, kPlaces = 8 };

namespace detail {
extern constinit std::atomic<unsigned> g_on;  // a bit for each place
extern constinit std::atomic<CommandCheck*> g_checks[kPlaces];

template <class F>
void each(unsigned on, F&& f) {
  for (; on != 0; on &= on - 1) f(*g_checks[std::countr_zero(on)].load(), on & -on);
}
}  // namespace detail

/// Whether there are checks. This is all that they cost otherwise.
inline bool any() noexcept { return detail::g_on.load(std::memory_order_acquire) != 0; }
/// Whether there is one beside this.
inline bool any_beside(Place place) noexcept { return (detail::g_on & ~(1U << place)) != 0; }
/// From now on the check is asked.
void add(CommandCheck& check, unsigned place);
void remove(unsigned place);

/// Calls the function of all checks: notify(&CommandCheck::host_waited, 0).
template <class... P, class... A>
void notify(void (CommandCheck::*function)(P...), A&&... arguments) {
  detail::each(detail::g_on.load(std::memory_order_acquire),
               [&](CommandCheck& check, unsigned) { (check.*function)(arguments...); });
}

/// Calls `enqueue`, which enqueues what `launch` then says, if no check refuses it.
void enqueue_checked(Launch& launch, const std::function<void()>& enqueue);

// The functions of a DeviceHeap, with checks. They take and return the program's addresses.
// allocate() sets `refusal`: why a check lets it fail.
DeviceHeap::Allocation allocate(DeviceHeap& heap, std::size_t bytes, Stream& stream, Where* where,
                                const Context& context, std::string& refusal);
DeviceHeap::Usage free(DeviceHeap& heap, void* address, Where* where, const Context& context = {});
void record_stream(DeviceHeap& heap, void* address, Stream& stream);
/// The heap's block that holds the memory; `address` if there is none.
const void* block_of(const void* address);

}  // namespace checks

}  // namespace openreg::memory
