#include "runtime/adversary.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/callbacks.h"
#include "runtime/mutex.h"
#include "runtime/patience.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"

namespace openreg::adversary {

namespace {

// SplitMix64 (Steele, Lea and Flood, 2014).
std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

/// What the random schedule decides. Like the schedules of probabilistic concurrency testing
/// (Burckhardt and others, 2010), it has phases. In a phase, streams have random priorities, so
/// that one is far behind another, and a submission is followed by commands always, sometimes or
/// never.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) noexcept : state_(mix(seed)) { begin_phase(); }

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

/// When the commands of one stream that have not completed were submitted.
class Submissions {
 public:
  explicit Submissions(std::uint64_t number) : number_(number) {}

  /// Of the stream, in the order of the first submissions to each. Their own numbers depend on what
  /// the process did before.
  std::uint64_t number() const noexcept { return number_; }
  void note(const CommandQueue& queue, std::uint64_t time) {
    forget_completed(queue);
    times_.resize(queue.published() - first_, time);
  }
  /// Of the next command; 0 if there is none.
  std::uint64_t next(const CommandQueue& queue) {
    forget_completed(queue);
    return times_.empty() ? 0 : times_.front();
  }

 private:
  void forget_completed(const CommandQueue& queue) {
    const auto completed = queue.completed();
    for (; first_ < completed && !times_.empty(); ++first_) times_.pop_front();
    first_ = completed;
  }

  const std::uint64_t number_;
  std::uint64_t first_ = 0;  // the position of the first of these
  std::deque<std::uint64_t> times_;
};

/// A leaf of Note [Lock order].
Mutex g_mutex;
Schedule::Kind g_kind OPENREG_GUARDED_BY(g_mutex) = Schedule::Kind::kDefault;
Dice g_dice OPENREG_GUARDED_BY(g_mutex){0};
std::uint64_t g_submissions OPENREG_GUARDED_BY(g_mutex) = 0;
std::unordered_map<const StreamImpl*, Submissions>& g_streams OPENREG_GUARDED_BY(g_mutex) =
    *new std::unordered_map<const StreamImpl*, Submissions>;

Submissions& submissions_of(const StreamImpl& stream) OPENREG_REQUIRES(g_mutex) {
  return g_streams.try_emplace(&stream, g_streams.size()).first->second;
}

constexpr std::chrono::milliseconds kAsk{20};  // for an interrupt, as in a wait

bool is_random() {
  const LockGuard lock(g_mutex);
  return g_kind == Schedule::Kind::kRandom;
}

// What may block could wait for what the calling thread does after its call.
StreamImpl* choose(const std::vector<StreamImpl*>& queued) {
  const LockGuard lock(g_mutex);
  g_dice.advance();
  StreamImpl* chosen = nullptr;
  std::uint64_t highest = 0;
  for (StreamImpl* const stream : queued) {
    if (stream->next_may_block()) continue;
    const auto priority = g_dice.priority(submissions_of(*stream).number());
    if (chosen && priority <= highest) continue;
    chosen = stream;
    highest = priority;
  }
  return chosen;
}

bool run_one() {
  Scheduler& scheduler = Scheduler::get();
  StreamImpl* const stream = scheduler.take_queued(&choose);
  if (!stream) return false;
  {
    RunSlice slice(*stream, RunSlice::Runner::kHost);
    if (slice.has_work() && !slice.step()) return true;
  }
  scheduler.release(*stream);
  return true;
}

// Returns the number of commands that shall run now.
int note_submission(StreamImpl& stream, bool may_run) {
  const LockGuard lock(g_mutex);
  Submissions& submissions = submissions_of(stream);
  if (g_kind == Schedule::Kind::kLatest) submissions.note(stream.queue, ++g_submissions);
  return g_kind == Schedule::Kind::kRandom && may_run ? g_dice.commands() : 0;
}

}  // namespace

void apply(const Schedule& schedule) {
  const bool acts = schedule.kind != Schedule::Kind::kDefault;
  {
    const LockGuard lock(g_mutex);
    g_kind = schedule.kind;
    g_dice = Dice(schedule.seed);
    g_submissions = 0;
    g_streams.clear();
  }
  g_acts.store(acts, std::memory_order_relaxed);
  patience::hold_engines(acts);
}

void submitted(StreamImpl& stream, Backpressure backpressure) {
  const bool by_host = !in_command();
  if (by_host) patience::renew();
  int commands = note_submission(stream, by_host && backpressure != Backpressure::kIgnore);
  if (stream.ownership.idle()) Scheduler::get().schedule(stream);
  if (commands == 0) return;
  const WaitScope scope;
  while (commands-- > 0 && run_one()) {
  }
}

bool run_any() { return !in_command() && is_random() && run_one(); }

void poll(StreamImpl& stream, const Fence* fence) {
  const auto reached = [&] { return fence ? fence->done() : stream.drained(); };
  if (reached()) return;
  {
    const LockGuard lock(g_mutex);
    if (g_kind == Schedule::Kind::kRandom && g_dice.coin()) return;
  }
  Scheduler& scheduler = Scheduler::get();
  const WaitScope scope;
  auto asked = Fence::Clock::now();
  while (!scheduler.stopping() && !reached()) {
    const Scheduler::Claim claim = scheduler.claim_queued(stream);
    if (claim.result != Scheduler::Claim::kOwned) return;
    StreamImpl& owned = *claim.stream;
    const Fence* const blocking_fence = claim.blocking_fence.get();
    bool parked = false;
    bool blocks = false;
    bool asks = false;
    {
      RunSlice slice(owned, RunSlice::Runner::kHost);
      while (!reached() && !(blocking_fence && blocking_fence->done()) && slice.has_work()) {
        if ((blocks = owned.next_may_block())) break;
        if ((asks = Fence::Clock::now() - asked >= kAsk)) break;
        if ((parked = !slice.step())) break;
      }
    }
    if (!parked) scheduler.release(owned);
    if (blocks) return patience::lose();
    patience::renew();
    if (!asks) continue;
    const auto check = current_callbacks().check_interrupt;
    if (check && !in_command()) check();
    asked = Fence::Clock::now();
  }
}

void order(std::vector<FenceRef>& marks) {
  const LockGuard lock(g_mutex);
  if (g_kind != Schedule::Kind::kLatest) return;
  std::vector<std::pair<std::uint64_t, FenceRef>> by_time;
  for (auto& mark : marks) {
    const StreamImpl& stream = *mark->source();
    by_time.emplace_back(submissions_of(stream).next(stream.queue), std::move(mark));
  }
  std::ranges::stable_sort(by_time, std::ranges::greater(),
                           [](const auto& each) { return each.first; });
  std::ranges::transform(by_time, marks.begin(), [](auto& each) { return std::move(each.second); });
}

}  // namespace openreg::adversary
