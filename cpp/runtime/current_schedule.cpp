#include "runtime/current_schedule.h"

#include <optional>
#include <thread>

#include "base/mutex.h"
#include "base/settings.h"
#include "runtime/adversary.h"
#include "runtime/process.h"
#include "runtime/stream_impl.h"
#include "runtime/stream_pool.h"

namespace openreg {

namespace {

Mutex g_mutex;
std::optional<Schedule> g_schedule OPENREG_GUARDED_BY(g_mutex);

void drain_devices() {
  const auto pools = StreamPool::all();
  for (std::size_t device = 0; device < pools.size(); ++device)
    drain_device(static_cast<int>(device));
}

// An engine owns a stream for a moment after the last command. A submission would find the stream
// taken, and the random schedule would depend on that moment.
void wait_for_idle_engines() {
  for (const StreamPool* const pool : StreamPool::all()) {
    for (const StreamImpl* const stream : pool->streams()) {
      while (stream->drained() && !stream->ownership.idle()) std::this_thread::yield();
    }
  }
}

}  // namespace

Schedule schedule() {
  const LockGuard lock(g_mutex);
  return g_schedule.value_or(settings().schedule);
}

void set_schedule(const Schedule& schedule) {
  check_usable();
  drain_devices();
  {
    const LockGuard lock(g_mutex);
    g_schedule = schedule;
  }
  if (!is_in_use()) return;  // begin_use() applies it
  adversary::apply(schedule);
  wait_for_idle_engines();
}

}  // namespace openreg
