#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/launch_site.h"
#include "base/mutex.h"
#include "memory/command_check.h"
#include "memory/idle_kernel.h"
#include "memory/memory_use.h"
#include "runtime/command.h"

namespace openreg::memory {

/// What is known of the values in a storage, if the device does not compute.
enum class Values : std::uint8_t {
  kNone,     ///< whatever was there: nothing has computed or set them
  kZeros,    ///< zeros in place of what was not computed, or what follows from zeros
  kAssumed,  ///< what follows from an assumption of the user
  kKnown,    ///< as if the device computed
};

/// What a user assumes of values that are not computed.
struct Assumptions {
  /// The part of the elements, from 0 to 1, that nonzero(), masks and the like select.
  std::optional<double> nonzero;
  /// A balanced router: topk() and argmax() choose each index equally often.
  bool balanced_routing = false;
};

/// Without computing (TORCH_OPENREG_COMPUTE=0): decides which commands run, and knows which values
/// follow from those that did. See Note [Without computing] in value_tracker.cpp. Thread safe.
class ValueTracker final : public CommandCheck {
 public:
  /// The process's tracker; nullptr if the devices compute.
  static ValueTracker* get() noexcept { return instance_.load(std::memory_order_acquire); }
  /// Called at the first use of device memory.
  static void start_if_enabled();

  /// Whether a kernel may run on, or the host may move, this much: integers and booleans up to
  /// 1 MiB, numbers with a fraction up to 4 KiB.
  static bool is_small(std::size_t bytes, const char* dtype) noexcept;

  void before_enqueue(Launch& launch) override;
  void before_replay(Launch& launch) override;
  void withdrawn(Launch& launch) override;
  void graph_destroyed(CaptureId capture) override;
  void freed(const void* address, Where*) override { forget(address); }
  void abandoned(const void* address) override { forget(address); }
  /// Notes a value that the host reads and nobody has computed, with the line that reads it. Throws
  /// Error if a line reads so many that it must be a loop that waits for one.
  void host_access(const char* op, const MemoryUse& memory) override;

  Values values_of(const void* storage) const OPENREG_EXCLUDES(mutex_);
  /// Something else than a command has written a storage, wholly or in part.
  void written(const void* storage, bool wholly, Values values) OPENREG_EXCLUDES(mutex_);

  /// A line of the program that read values which were not computed.
  struct Read {
    LaunchSite site;
    std::string op;
    std::uint64_t count;
  };
  Assumptions assumptions() const OPENREG_EXCLUDES(mutex_);
  void assume(const Assumptions& assumptions) OPENREG_EXCLUDES(mutex_);

  struct Report {
    std::uint64_t computed = 0;  ///< commands that ran
    std::uint64_t skipped = 0;   ///< commands that did not
    std::vector<Read> reads;
  };
  Report report() const OPENREG_EXCLUDES(mutex_);

 private:
  // What follows from an operator's name.
  struct Operator {
    bool only_writes;
    bool in_place;
    bool finds_infinities;
    bool chooses;
  };
  // What a command does with a storage.
  struct Effect {
    const void* storage;
    bool reads;
    bool writes;
    bool wholly;    // it writes all of it
    bool is_small;  // what it uses
    // Whatever the command reads:
    bool becomes_known;
    bool becomes_assumed;
  };
  // What a command does to values; with a capture, what its node does in each run.
  struct Step {
    std::vector<Effect> effects;
    bool runs;      // in place of an idle kernel
    bool is_small;  // all that it uses
  };

  ValueTracker() = default;
  static Operator operator_of(std::string_view name);
  Values decide(const Launch& launch, Step& step) OPENREG_REQUIRES(mutex_);
  Values read_by(const Step& step) const OPENREG_REQUIRES(mutex_);
  void apply(const Step& step, Values read) OPENREG_REQUIRES(mutex_);
  void make_idle(Launch& launch) OPENREG_REQUIRES(mutex_);
  void put(const void* storage, Values values) OPENREG_REQUIRES(mutex_);
  Values value_of(const void* storage) const OPENREG_REQUIRES(mutex_);
  IdleKernel::Fill fill_for(const Launch& launch, const MemoryUse& use) const
      OPENREG_REQUIRES(mutex_);
  const Kernel& idle(const Kernel& kernel, bool fills) OPENREG_REQUIRES(mutex_);
  void forget(const void* storage) OPENREG_EXCLUDES(mutex_);

  static std::atomic<ValueTracker*> instance_;
  mutable Mutex mutex_;
  std::unordered_map<const void*, Values> values_ OPENREG_GUARDED_BY(mutex_);       // without kNone
  std::unordered_map<const char*, Operator> operators_ OPENREG_GUARDED_BY(mutex_);  // by address
  // Without and with fills.
  std::unordered_map<const Kernel*, std::array<std::unique_ptr<const IdleKernel>, 2>> idle_
      OPENREG_GUARDED_BY(mutex_);
  Step step_ OPENREG_GUARDED_BY(mutex_);  // of the last command: its memory is used again
  std::unordered_map<CaptureId, std::vector<Step>> captured_ OPENREG_GUARDED_BY(mutex_);
  Assumptions assumptions_ OPENREG_GUARDED_BY(mutex_);
  std::map<std::pair<LaunchSite, std::string>, std::uint64_t> reads_ OPENREG_GUARDED_BY(mutex_);
  std::uint64_t computed_ OPENREG_GUARDED_BY(mutex_) = 0;
  std::uint64_t skipped_ OPENREG_GUARDED_BY(mutex_) = 0;
};

}  // namespace openreg::memory
