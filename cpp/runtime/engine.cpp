#include "runtime/engine.h"

#include <chrono>
#include <system_error>
#include <utility>

#include "base/counters.h"
#include "base/error.h"
#include "base/thread.h"
#include "runtime/host_expectation.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"
#include "runtime/stream_impl.h"

namespace openreg {

namespace {

constinit thread_local std::optional<EngineKind> t_engine;

// How long a run slice lasts if another stream is runnable.
class Quantum {
 public:
  // Called before each command while another stream is runnable.
  bool used_up() noexcept {
    return ++commands_ > thresholds::kQuantumCommands ||
           std::chrono::steady_clock::now() - begin_ >= thresholds::kQuantum;
  }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  int commands_ = 0;
};

// Runs the stream, which the engine owns, until the engine no longer owns it.
void run(StreamImpl& stream, Scheduler& scheduler, EngineKind kind) {
  RunSlice slice(stream, RunSlice::Runner::kEngine);
  Quantum quantum;
  const bool low = stream.level != Priority::kHigh;
  std::uint64_t yielded = 0;
  while (!scheduler.stopping()) {
    if (!slice.has_work()) {
      slice.flush_counters();
      if (!poll_before_idle(stream, scheduler, kind) && scheduler.go_idle(stream)) return;
      continue;
    }
    if (!wait_for_expected_host(stream, scheduler, kind)) return;
    if (stream.ownership.wanted() && scheduler.hand_over(stream)) return;
    if (scheduler.holds_engines() || !slice.is_for(kind) ||
        (scheduler.has_ready(kind) && quantum.used_up()) ||
        (low && scheduler.has_ready_high(kind))) {
      scheduler.release(stream);
      return;
    }
    if (yield_before_long(stream, scheduler, kind, yielded)) continue;
    if (!slice.step()) return;
  }
}

void engine_main(EngineKind kind) {
  t_engine = kind;
  disable_wakeup_preemption();
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
