#include "runtime/adversary.h"

#include <chrono>
#include <deque>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mix.h"
#include "base/mutex.h"
#include "runtime/engine_gate.h"
#include "runtime/fence.h"
#include "runtime/host_expectation.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"

namespace openreg::adversary {

namespace {

/// What the random schedule decides. Like the schedules of probabilistic concurrency testing
/// (Burckhardt and others, 2010), it has phases. In a phase, streams have random priorities, so
/// that one is far behind another, and a submission is followed by commands always, sometimes or
/// never.
class ScheduleRng {
 public:
  explicit ScheduleRng(std::uint64_t seed) noexcept : state_(mix(seed)) { begin_phase(); }

  /// How many commands run after a submission.
  int commands() noexcept {
    if (one_in(kSubmissionsPerPhase)) begin_phase();
    return below(kMostEagerness) < eagerness_ ? static_cast<int>(1 + below(kMostCommands)) : 0;
  }
  /// Of the streams that could run, the one with the highest priority runs.
  std::uint64_t priority(std::uint64_t stream) const noexcept { return mix(phase_ ^ mix(stream)); }
  /// Called before each choice among streams.
  void advance() noexcept {
    if (one_in(kCommandsPerPhase)) begin_phase();
  }
  bool coin() noexcept { return one_in(2); }

 private:
  static constexpr std::uint64_t kSubmissionsPerPhase = 32;
  static constexpr std::uint64_t kCommandsPerPhase = 8;
  static constexpr std::uint64_t kMostEagerness = 4;
  static constexpr std::uint64_t kMostCommands = 3;

  std::uint64_t next() noexcept { return state_ = mix(state_); }
  std::uint64_t below(std::uint64_t bound) noexcept { return (next() >> 32U) % bound; }
  bool one_in(std::uint64_t bound) noexcept { return below(bound) == 0; }
  void begin_phase() noexcept {
    phase_ = next();
    eagerness_ = below(kMostEagerness + 1);
  }

  std::uint64_t state_;
  std::uint64_t phase_ = 0;
  std::uint64_t eagerness_ = 0;  // of kMostEagerness
};

/// The commands of one stream that have not completed.
class Pending {
 public:
  struct Command {
    /// Of the submission. Records, waits, and what begins and ends a replay have the highest: they
    /// compute nothing, and what they release can run.
    std::uint64_t time = kAtOnce;
    /// Of a wait for a stream: it ends when more than `position` commands of `source` have
    /// completed.
    const StreamImpl* source = nullptr;
    std::uint64_t position = 0;

    bool can_run() const noexcept { return !source || source->queue.completed() > position; }
  };
  static constexpr auto kAtOnce = std::numeric_limits<std::uint64_t>::max();

  explicit Pending(std::uint64_t number) : number_(number) {}

  /// Of the stream, in the order of the first submissions to each. Their own numbers depend on what
  /// the process did before.
  std::uint64_t number() const noexcept { return number_; }
  void note(const CommandQueue& queue, std::uint64_t position, const Command& command) {
    forget_completed(queue);
    if (position < first_) return;  // another thread has run it
    if (commands_.size() <= position - first_) commands_.resize(position - first_ + 1);
    commands_[position - first_] = command;
  }
  Command next(const CommandQueue& queue) {
    forget_completed(queue);
    return commands_.empty() ? Command() : commands_.front();
  }
  /// Whether no host has asked before about the stream's first `commands`. Notes that one has.
  bool ask_first(std::uint64_t commands) noexcept {
    if (commands <= asked_) return false;
    asked_ = commands;
    return true;
  }
  /// Calls `use` with each command that is among the stream's first `commands`.
  template <class Use>
  void for_each_before(std::uint64_t commands, Use use) const {
    for (auto position = first_; position < commands; ++position) {
      if (position - first_ == commands_.size()) return;
      use(commands_[position - first_]);
    }
  }

 private:
  void forget_completed(const CommandQueue& queue) {
    const auto completed = queue.completed();
    for (; first_ < completed && !commands_.empty(); ++first_) commands_.pop_front();
    first_ = completed;
  }

  const std::uint64_t number_;
  std::uint64_t asked_ = 0;
  std::uint64_t first_ = 0;  // the position of the first of these
  std::deque<Command> commands_;
};

/// A leaf of Note [Lock order].
Mutex g_mutex;
Schedule::Kind g_kind OPENREG_GUARDED_BY(g_mutex) = Schedule::Kind::kEarliest;
ScheduleRng g_rng OPENREG_GUARDED_BY(g_mutex){0};
std::uint64_t g_submissions OPENREG_GUARDED_BY(g_mutex) = 0;
std::unordered_map<const StreamImpl*, Pending>& g_streams OPENREG_GUARDED_BY(g_mutex) =
    *new std::unordered_map<const StreamImpl*, Pending>;

Pending& pending_of(const StreamImpl& stream) OPENREG_REQUIRES(g_mutex) {
  return g_streams.try_emplace(&stream, g_streams.size()).first->second;
}

bool is_random() {
  const LockGuard lock(g_mutex);
  return g_kind == Schedule::Kind::kRandom;
}

using Streams = std::vector<StreamImpl*>;

// What may block could wait for what the calling thread does after its call.
StreamImpl* choose_any(const Streams& queued) {
  const LockGuard lock(g_mutex);
  g_rng.advance();
  StreamImpl* chosen = nullptr;
  std::uint64_t highest = 0;
  for (StreamImpl* const stream : queued) {
    if (stream->next_may_block()) continue;
    const auto priority = g_rng.priority(pending_of(*stream).number());
    if (chosen && priority <= highest) continue;
    chosen = stream;
    highest = priority;
  }
  return chosen;
}

bool run_any(Callbacks::SinceLastWait before = {}) {
  Scheduler& scheduler = Scheduler::get();
  StreamImpl* const stream = scheduler.take_queued(&choose_any);
  if (!stream) return false;
  {
    RunSlice slice(*stream, RunSlice::Runner::kHost, before);
    if (slice.has_work() && !slice.step()) return true;
  }
  scheduler.release(*stream);
  return true;
}

// Among the streams whose next command is needed and need not wait: first those whose next command
// computes nothing, then the one whose next command was submitted last or, in the random schedule,
// the one with the highest priority.
StreamImpl* choose_needed(const Streams& queued, const RequiredCommands& required) {
  const LockGuard lock(g_mutex);
  StreamImpl* chosen = nullptr;
  std::uint64_t highest = 0;
  for (StreamImpl* const stream : queued) {
    if (!required.includes_next(*stream)) continue;
    Pending& pending = pending_of(*stream);
    const auto next = pending.next(stream->queue);
    if (!next.can_run()) continue;
    const bool by_seed = g_kind == Schedule::Kind::kRandom && next.time != Pending::kAtOnce;
    const auto priority = by_seed ? g_rng.priority(pending.number()) : next.time;
    if (chosen && priority <= highest) continue;
    chosen = stream;
    highest = priority;
  }
  return chosen;
}

enum class Ran : std::uint8_t { kNothing, kCommands, kWouldBlock };

// Runs commands of one stream. A later one of the same stream was submitted later, so there is
// nothing new to choose until one that computes nothing: a record may release another stream.
Ran run_needed(const RequiredCommands& required, bool may_block,
               Callbacks::SinceLastWait before = {}) {
  Scheduler& scheduler = Scheduler::get();
  StreamImpl* const stream = scheduler.take_queued(
      [&required](const Streams& queued) { return choose_needed(queued, required); });
  if (!stream) return Ran::kNothing;
  const auto end = Fence::Clock::now() + thresholds::kInterruptCheckWhileHelping;
  bool blocks = false;
  {
    RunSlice slice(*stream, RunSlice::Runner::kHost, before);
    bool again = true;
    while (again && !scheduler.stopping() && required.includes_next(*stream) && slice.has_work()) {
      if ((blocks = !may_block && stream->next_may_block())) break;
      again = stream->next_computes();
      if (!slice.step()) return Ran::kCommands;  // it is parked
      if (Fence::Clock::now() >= end) break;
    }
  }
  scheduler.release(*stream);
  return blocks ? Ran::kWouldBlock : Ran::kCommands;
}

Pending::Command pending_command(const Record& record) OPENREG_REQUIRES(g_mutex) {
  const auto time = ++g_submissions;
  if (record.kind == Record::kRun) return {.time = time};
  if (record.kind == Record::kGraph && record.computes) return {.time = time};
  if (record.kind != Record::kWait) return {};
  const auto& fence = *static_cast<const Fence*>(record.target);
  return {.source = fence.source(), .position = fence.position()};
}

// Returns the number of commands that shall run now.
int note_submission(StreamImpl& stream, const Record& record, std::uint64_t position,
                    bool may_run) {
  const LockGuard lock(g_mutex);
  pending_of(stream).note(stream.queue, position, pending_command(record));
  return g_kind == Schedule::Kind::kRandom && may_run ? g_rng.commands() : 0;
}

}  // namespace

void apply(const Schedule& schedule) {
  const bool active = schedule.kind != Schedule::Kind::kEarliest;
  {
    const LockGuard lock(g_mutex);
    g_kind = schedule.kind;
    g_rng = ScheduleRng(schedule.seed);
    g_submissions = 0;
    g_streams.clear();
  }
  g_is_active.store(active, std::memory_order_relaxed);
  engine_gate::hold_engines(active);
}

void submitted(StreamImpl& stream, const Record& record, std::uint64_t position,
               Backpressure backpressure) {
  const bool by_host = !in_command();
  if (by_host) engine_gate::close();
  int commands =
      note_submission(stream, record, position, by_host && backpressure != Backpressure::kIgnore);
  if (stream.ownership.idle()) Scheduler::get().schedule(stream);
  if (commands == 0) return;
  const WaitScope scope;
  while (commands-- > 0 && run_any()) {
  }
}

RequiredCommands::RequiredCommands(std::span<const Goal> goals) {
  const LockGuard lock(g_mutex);
  std::vector<std::pair<const StreamImpl*, std::uint64_t>> open;
  for (const Goal& goal : goals) open.emplace_back(&goal.stream(), goal.commands());
  while (!open.empty()) {
    const auto [stream, commands] = open.back();
    open.pop_back();
    auto& needed = commands_[stream];
    if (commands <= needed) continue;
    needed = commands;
    pending_of(*stream).for_each_before(commands, [&open](const Pending::Command& command) {
      if (!command.can_run()) open.emplace_back(command.source, command.position + 1);
    });
  }
}

bool RequiredCommands::includes_next(const StreamImpl& stream) const noexcept {
  const auto found = commands_.find(&stream);
  return found != commands_.end() && stream.queue.completed() < found->second;
}

bool work(const RequiredCommands& required, Callbacks::SinceLastWait before) {
  if (in_command()) return false;
  return is_random() ? run_any(before) : run_needed(required, true, before) != Ran::kNothing;
}

void poll(const Goal& goal, QueryKind kind) {
  if (goal.reached()) return;
  {
    const LockGuard lock(g_mutex);
    if (g_kind == Schedule::Kind::kRandom && g_rng.coin()) return;
    if (g_kind == Schedule::Kind::kLatest && kind == QueryKind::kOnce &&
        pending_of(goal.stream()).ask_first(goal.commands()))
      return;
  }
  const RequiredCommands required({&goal, 1});
  const WaitScope scope;
  auto asked = Fence::Clock::now();
  while (!Scheduler::get().stopping() && !goal.reached()) {
    const Ran ran = run_needed(required, false);
    if (ran == Ran::kNothing) return;
    if (ran == Ran::kWouldBlock) return engine_gate::open();
    engine_gate::close();
    if (Fence::Clock::now() - asked < thresholds::kInterruptCheckWhileHelping) continue;
    const auto check = current_callbacks().check_interrupt;
    if (check && !in_command()) check();
    asked = Fence::Clock::now();
  }
}

}  // namespace openreg::adversary
