#include "runtime/host_expectation.h"

#include <algorithm>
#include <thread>

#include "base/counters.h"
#include "base/spin.h"
#include "base/test_point.h"
#include "base/usable_cores.h"
#include "runtime/remote_runner.h"
#include "runtime/scheduler.h"
#include "runtime/stream_impl.h"

namespace openreg {

void HostExpectation::note_wait(Clock::time_point end, std::chrono::nanoseconds away,
                                std::chrono::nanoseconds published) noexcept {
  cost_at_last_wait.store(published, std::memory_order_relaxed);
  next_wait.store(end + away, std::memory_order_relaxed);
  latest_next_wait.store(end + away + away / 2, std::memory_order_relaxed);
}

constinit thread_local HostWaitStats::Clock::time_point HostWaitStats::last_begin_;
constinit thread_local HostWaitStats::Clock::time_point HostWaitStats::last_end_;
constinit thread_local Callbacks::SinceLastWait::Waits HostWaitStats::waits_;

HostWaitStats::HostWaitStats(StreamImpl* stream) noexcept : stream_(stream) {
  if (!stream_) return;
  begin_ = Clock::now();
  if (last_end_ == Clock::time_point{}) return;
  before_.away = begin_ - last_end_;
  before_.launched = stream_->queue.cost_published() -
                     stream_->host_expectation.cost_at_last_wait.load(std::memory_order_relaxed);
  before_.last_wait = last_end_ - last_begin_;
  before_.waits = waits_;
}

HostWaitStats::~HostWaitStats() {
  if (!stream_) return;
  const auto end = Clock::now();
  if (last_end_ != Clock::time_point{}) {
    ++waits_.count;
    waits_.time += end - last_end_;
    waits_.launched += before_.launched;
  }
  last_begin_ = begin_;
  last_end_ = end;
  stream_->host_expectation.note_wait(last_end_, before_.away, stream_->queue.cost_published());
}

bool poll_before_idle(const StreamImpl& stream, const Scheduler& scheduler, EngineKind kind) {
  spin_until([&] {
    return !stream.drained() || stream.ownership.wanted() || scheduler.has_ready(kind) ||
           scheduler.stopping();
  });
  return !stream.drained();
}

bool poll_before_sleep(const Scheduler& scheduler, EngineKind kind) {
  return spin_until([&] { return scheduler.has_ready(kind) || scheduler.stopping(); });
}

// With one core, or as much time, an engine interrupts the hosts, which run their commands
// themselves when they wait or when a queue is full. So it begins when they have not done so for
// some time, or not soon enough for a host that polls.
void leave_core_to_hosts() noexcept {
  for (int times = 0; times < thresholds::kMostSleeps && usable_cores() == 1; ++times) {
    const auto helps = counters::helps.value();
    std::this_thread::sleep_for(thresholds::kHostsIdle);
    if (counters::helps.value() == helps) return;
  }
}

// Only if the host is expected in no more time than a team takes for the command.
bool wait_for_expected_host(StreamImpl& stream, Scheduler& scheduler, EngineKind kind) {
  const HostExpectation& expected = stream.host_expectation;
  const auto latest = expected.latest_next_wait.load(std::memory_order_relaxed);
  if (kind != EngineKind::kCompute || latest == HostExpectation::Clock::time_point{}) return true;
  const Record& record = stream.queue.front();
  const std::chrono::nanoseconds alone(record.cost.nanoseconds);
  if (record.kind != Record::kRun || alone < thresholds::kWorthWaiting || stream.failure.full())
    return true;
  const auto now = HostExpectation::Clock::now();
  if (now >= latest || scheduler.holds_engines() || RemoteRunner::of(stream.device_index))
    return true;
  const auto longest =
      std::min<std::chrono::nanoseconds>(alone / usable_cores(), thresholds::kSoon);
  const auto until_next = expected.next_wait.load(std::memory_order_relaxed) - now;
  return until_next > longest || scheduler.reserve_for_host(stream, latest);
}

namespace {

// Whether nothing follows the next command, or only what a wait enqueues itself.
bool is_last(StreamImpl& stream) noexcept {
  const Record* const behind = stream.queue.behind_front(1);
  return !behind || behind->kind == Record::kRecord;
}

}  // namespace

bool yield_before_long(StreamImpl& stream, const Scheduler& scheduler, EngineKind kind,
                       std::uint64_t& yielded) {
  const auto number = stream.queue.completed() + 1;
  if (kind != EngineKind::kCompute || yielded == number || !stream.next_is_long() ||
      stream.failure.full() || !is_last(stream))
    return false;
  yielded = number;
  reach(TestPoint::kLongIsNext);
  spin_until([&] {
    return stream.ownership.wanted() || !is_last(stream) || scheduler.has_ready(kind) ||
           scheduler.stopping();
  });
  return true;
}

}  // namespace openreg
