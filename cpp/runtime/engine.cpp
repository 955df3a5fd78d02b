#include "runtime/engine.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "runtime/counters.h"
#include "runtime/error.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"
#include "runtime/spin.h"
#include "runtime/stream_impl.h"
#include "runtime/test_point.h"
#include "runtime/thread.h"

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

// A long command that is the last of its stream is often followed by a wait. The host then computes
// it with its team, in half the time or less, so the engine gives it a moment to come, once for
// each command. `given`: the number of the command for which it did that last. Returns whether it
// has done so now.
bool gives_host_time(StreamImpl& stream, const Scheduler& scheduler, EngineKind kind,
                     std::uint64_t& given) {
  const auto last = stream.queue.completed() + 1;
  if (given == last || stream.queue.published() != last || stream.failure.full() ||
      !stream.next_is_long())
    return false;
  given = last;
  reach(TestPoint::kLongIsNext);
  spin_until([&] {
    return stream.ownership.wanted() || stream.queue.published() != last ||
           scheduler.has_ready(kind) || scheduler.stopping();
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
    if (stream.ownership.wanted() && scheduler.hand_over(stream)) return;
    if (scheduler.holds_engines() || !slice.is_for(kind) ||
        (scheduler.has_ready(kind) && quantum.used_up()) ||
        (low && scheduler.has_ready_high(kind))) {
      scheduler.release(stream);
      return;
    }
    if (kind == EngineKind::kCompute && gives_host_time(stream, scheduler, kind, given)) continue;
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
    throw Error("openreg: the system refuses a thread for an engine (got \"" +
                refused.code().message() + "\"); raise `ulimit -u`");
  }
  counters::engines.add();
}

std::optional<EngineKind> this_engine() noexcept { return t_engine; }

}  // namespace openreg
