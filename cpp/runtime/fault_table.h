#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fault_spec.h"
#include "base/mutex.h"
#include "runtime/stream.h"

namespace openreg {

/// An event that faults count.
struct FaultEvent {
  FaultPoint point;
  const char* name = "";  ///< name of the operator or the collective, if there is one
  int device = -1;
  int rank = -1;             ///< rank in the group of a collective
  bool can_corrupt = false;  ///< it writes to memory that is known: only such count for "corrupt"
  bool in_executor = false;  ///< it runs in the executor, if any: only such count for "crash"
};

/// A fault that is in force until it is disarmed. Thread safe.
class ArmedFault {
 public:
  enum class From : bool { kProgram, kSettings };

  /// Reads launched_process(): a fault of another rank, or of another restart, counts nothing.
  ArmedFault(FaultSpec spec, std::uint64_t seed, From from);

  const FaultSpec& spec() const noexcept { return spec_; }
  From from() const noexcept { return from_; }
  /// The seed of the random choices; drawn at random if the specification has none.
  std::uint64_t seed() const noexcept { return seed_; }

  struct Counts {
    std::uint64_t counted = 0;
    std::uint64_t fired = 0;
    std::vector<std::string> where{};  ///< the first 16 times: "allocation 3 on <device>"
  };
  Counts counts() const OPENREG_EXCLUDES(mutex_);

  /// Counts the event if the fault is about such events. Returns the event's number if the fault
  /// occurs now.
  std::optional<std::uint64_t> count_event(const FaultEvent& event) OPENREG_EXCLUDES(mutex_);
  /// A number that depends on the seed and `number` only.
  std::uint64_t random(std::uint64_t number) const noexcept;

  /// "injected fault (error@aten::mm:3)", for errors.
  std::string describe() const { return "injected fault (" + spec_.text + ")"; }

  /// Later commands of `stream` wait until the fault is disarmed, or the stream's device is lost or
  /// reset. Throws as Stream::enqueue() does.
  void hang(Stream& stream) OPENREG_EXCLUDES(mutex_);
  /// Calls `end` when the fault is disarmed, or the device is lost or reset, from the thread that
  /// causes it, with no lock held; at once if the fault has been disarmed.
  void hang(int device, std::function<void()> end) OPENREG_EXCLUDES(mutex_);
  /// Ends the hangs of `device`, or (-1) all and all future ones.
  void release(int device = -1) OPENREG_EXCLUDES(mutex_);

 private:
  bool is_about(const FaultEvent& event) const noexcept;

  struct Hang {
    int device;
    std::function<void()> end;
  };

  const FaultSpec spec_;
  const std::uint64_t seed_;
  const From from_;
  const bool in_this_process_;
  mutable Mutex mutex_;
  Counts counts_ OPENREG_GUARDED_BY(mutex_);
  std::vector<Hang> hangs_ OPENREG_GUARDED_BY(mutex_);
  bool released_ OPENREG_GUARDED_BY(mutex_) = false;
};

/// A fault that occurs now.
struct FiredFault {
  std::shared_ptr<ArmedFault> fault;
  std::uint64_t number;  ///< number of the event among those that the fault has counted
};

/// The faults of the process.
namespace faults {

namespace detail {
extern constinit std::atomic<int> g_armed;
std::vector<FiredFault> count_event(const FaultEvent& event);
}  // namespace detail

/// Whether any fault is armed. While none is, this check is the only cost.
inline bool any() noexcept { return detail::g_armed.load(std::memory_order_acquire) != 0; }

/// Arms what TORCH_OPENREG_FAULTS says, once: called before anything is counted. Throws Error if
/// the settings are malformed.
void start();

/// Arms a fault: from now on its events are counted. Throws Error if it cannot occur.
std::shared_ptr<ArmedFault> arm(FaultSpec spec, ArmedFault::From from = ArmedFault::From::kProgram);
/// Disarms a fault, and ends the commands that it hangs. Does nothing if it has been disarmed.
void disarm(const std::shared_ptr<ArmedFault>& fault);

/// Counts the event, and returns the faults that fire at it.
inline std::vector<FiredFault> count_event(const FaultEvent& event) {
  return any() ? detail::count_event(event) : std::vector<FiredFault>();
}
/// Meant for points with one kind of fault: counts the event, and describes the fault that fires,
/// if any.
std::optional<std::string> count_and_describe(const FaultEvent& event);

/// Ends all that hangs on the device.
void release_hung(int device);

/// A line for each specification that was armed so far: what fired, and what did not. Empty if none
/// was.
std::string summary();
/// Prints such lines to stderr, once: for the faults of the settings, and for those of the program
/// that never fired.
void print_summary() noexcept;

}  // namespace faults

}  // namespace openreg
