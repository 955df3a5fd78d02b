#include "runtime/engine.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/counters.h"
#include "base/error.h"
#include "executor/executor.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"
#include "base/spin.h"
#include "runtime/stream_impl.h"
#include "base/test_point.h"
#include "base/thread.h"
#include "base/usable_cores.h"

namespace openreg {

namespace {

constinit thread_local std::optional<EngineKind> t_engine;

// How long a run slice lasts if another stream is runnable.
class Quantum {
 public:
  // Called before each command while another stream is runnable.
  bool used_up() noexcept {
    return ++commands_ > kCommands || std::chrono::steady_clock::now() - begin_ >= kTime;
  }

 private:
  static constexpr int kCommands = 64;
  static constexpr std::chrono::milliseconds kTime{1};

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int commands_ = 0;
};

// Polls the drained stream for a while before giving it up: a launch then costs the producer
// neither a lock nor a wake-up. Returns whether there is something to run.
bool linger(const StreamImpl& stream, const Scheduler& scheduler, EngineKind kind) {
  spin_until([&] {
    return !stream.drained() || stream.ownership.wanted() || scheduler.has_ready(kind) ||
           scheduler.stopping();
  });
  return !stream.drained();
}

// A host that waits computes a command with its team, in half the time or less, and an engine that
// has begun one competes with that team for the cores. So an engine gives hosts time to come.

// Until a host is expected to wait (it waits in a rhythm), if that is soon: in no more time than a
// team takes for the command, and at most two milliseconds, because an engine has a team, too, for
// a command of ten, which gains more from beginning early. A layer's forward and backward passes of
// 8 ms took up to 60 ms if an engine began them while the host was still launching. Returns
// whether the engine owns the stream.
bool leave_to_expected_host(StreamImpl& stream, Scheduler& scheduler, EngineKind kind) {
  constexpr std::chrono::microseconds kWorthLeaving{100};  // some ten times what a hand-over costs
  constexpr std::chrono::milliseconds kSoon{2};
  const auto latest = stream.latest_next_wait.load(std::memory_order_relaxed);
  if (kind != EngineKind::kCompute || latest == StreamImpl::Clock::time_point{}) return true;
  const Record& record = stream.queue.front();
  const std::chrono::nanoseconds alone(record.cost.nanoseconds);
  if (record.kind != Record::kRun || alone < kWorthLeaving || stream.failure.full()) return true;
  const auto now = StreamImpl::Clock::now();
  if (now >= latest || scheduler.holds_engines() || Executor::of(stream.device_index)) return true;
  const auto longest = std::min<std::chrono::nanoseconds>(alone / usable_cores(), kSoon);
  const auto until_next = stream.next_wait.load(std::memory_order_relaxed) - now;
  return until_next > longest || scheduler.leave_to_host(stream, latest);
}

// Whether nothing follows the next command, or only what a wait enqueues itself.
bool is_last(StreamImpl& stream) noexcept {
  const Record* const behind = stream.queue.behind_front(1);
  return !behind || behind->kind == Record::kRecord;
}

// For a moment, if the command is long and the last of its stream, which is often followed by a
// wait; once for each command. `given`: the number of the command for which the engine did that
// last. Returns whether it has done so now.
bool gives_host_a_moment(StreamImpl& stream, const Scheduler& scheduler, EngineKind kind,
                         std::uint64_t& given) {
  const auto number = stream.queue.completed() + 1;
  if (kind != EngineKind::kCompute || given == number || !stream.next_is_long() ||
      stream.failure.full() || !is_last(stream))
    return false;
  given = number;
  reach(TestPoint::kLongIsNext);
  spin_until([&] {
    return stream.ownership.wanted() || !is_last(stream) || scheduler.has_ready(kind) ||
           scheduler.stopping();
  });
  return true;
}

// Runs the stream, which the engine owns, until the engine no longer owns it.
void run(StreamImpl& stream, Scheduler& scheduler, EngineKind kind) {
  RunSlice slice(stream, RunSlice::Runner::kEngine);
  Quantum quantum;
  const bool low = stream.level != Priority::kHigh;
  std::uint64_t given = 0;
  while (!scheduler.stopping()) {
    if (!slice.has_work()) {
      slice.flush_counters();
      if (!linger(stream, scheduler, kind) && scheduler.go_idle(stream)) return;
      continue;
    }
    if (!leave_to_expected_host(stream, scheduler, kind)) return;
    if (stream.ownership.wanted() && scheduler.hand_over(stream)) return;
    if (scheduler.holds_engines() || !slice.is_for(kind) ||
        (scheduler.has_ready(kind) && quantum.used_up()) ||
        (low && scheduler.has_ready_high(kind))) {
      scheduler.release(stream);
      return;
    }
    if (gives_host_a_moment(stream, scheduler, kind, given)) continue;
    if (!slice.step()) return;
  }
}

void engine_main(EngineKind kind) {
  t_engine = kind;
  let_wakers_go_on();
  Scheduler& scheduler = Scheduler::get();
  bool arriving = true;
  while (StreamImpl* const stream = scheduler.next_stream(kind, std::exchange(arriving, false))) {
    run(*stream, scheduler, kind);
  }
}

}  // namespace

void start_engine_thread(EngineKind kind) {
  try {
    const char* const name = kind == EngineKind::kCopy ? "openreg-copies" : "openreg-engine";
    start_detached_thread(name, [kind] { engine_main(kind); });
  } catch (const std::system_error& refused) {
    throw Error("openreg: cannot start an engine thread: " + refused.code().message() +
                "; raise `ulimit -u`");
  }
  counters::engines.add();
}

std::optional<EngineKind> this_engine() noexcept { return t_engine; }

}  // namespace openreg
