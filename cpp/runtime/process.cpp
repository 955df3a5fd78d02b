#include "runtime/process.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "address_space/address_space.h"
#include "base/device_name.h"
#include "base/error.h"
#include "base/launch_site.h"
#include "base/settings.h"
#include "base/test_point.h"
#include "runtime/adversary.h"
#include "runtime/callbacks.h"
#include "runtime/command.h"
#include "runtime/current_schedule.h"
#include "runtime/engine_gate.h"
#include "runtime/fault_table.h"
#include "runtime/remote_runner.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"
#include "runtime/stream_impl.h"
#include "runtime/stream_pool.h"

namespace openreg {

namespace {

enum class Phase : int { kUnused, kInUse, kRestricted, kShutDown, kForked };
std::atomic<Phase> g_phase{Phase::kUnused};
std::atomic<bool> g_handlers{false};  // the process began to use the device
std::atomic<bool> g_used{false};      // of this process or, in a forked child, of its parent
std::thread::id g_last_user;          // while kRestricted

Phase phase() noexcept { return g_phase.load(std::memory_order_acquire); }

bool is_last_user() noexcept { return std::this_thread::get_id() == g_last_user; }

// Whether commands run, or could.
bool works(Phase phase) noexcept {
  return phase == Phase::kInUse || (phase == Phase::kRestricted && g_used.load());
}

std::atomic<int> g_forks{0};

// The child has none of the parent's threads, but all the locks that they held.
void after_fork_in_child() noexcept {
  g_forks.fetch_add(1, std::memory_order_relaxed);
  if (g_handlers.load(std::memory_order_acquire)) g_phase.store(Phase::kForked);
}

// Registered when the library is loaded, because the program may begin at any time to use what a
// child must not use.
const int kForkHandler = pthread_atfork(nullptr, nullptr, &after_fork_in_child);

[[noreturn]] void throw_forked() {
  // The message of torch.cuda, which users know and search for.
  const std::string device = kDeviceInProse;
  throw Error("openreg: Cannot re-initialize " + device + " in forked subprocess. To use " +
              device + " with multiprocessing, you must use the 'spawn' start method");
}

// Time for work that a program submits last and does not wait for, so that its failures are
// printed.
constexpr std::chrono::seconds kGrace{1};
constexpr std::chrono::microseconds kLook{200};

struct Rest {
  const StreamImpl* stream;
  std::uint64_t published;
};

std::vector<Rest> queued() {
  std::vector<Rest> rests;
  for (StreamPool* const pool : StreamPool::all()) {
    for (const StreamImpl* const stream : pool->streams()) {
      if (!stream->drained()) rests.push_back({stream, stream->queue.published()});
    }
  }
  return rests;
}

// Returns when the engines have run what is queued now, cannot continue, or the time is up.
// Whether they have run it.
bool run_queued() {
  const engine_gate::OpenScope engines_work;
  const std::vector<Rest> rests = queued();
  const auto runs = [](const Rest& rest) {
    return rest.stream->queue.completed() < rest.published &&
           Scheduler::get().is_runnable(*rest.stream);
  };
  const auto end = std::chrono::steady_clock::now() + kGrace;
  while (std::ranges::any_of(rests, runs) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kLook);
  }
  return std::ranges::all_of(
      rests, [](const Rest& rest) { return rest.stream->queue.completed() >= rest.published; });
}

void print_uncollected() {
  for (StreamPool* const pool : StreamPool::all()) {
    for (const FailurePtr& failure : pool->failures()) failure->print_if_uncollected();
  }
}

void print_unknown_settings() {
  for (const std::string& line : unknown_settings()) std::fprintf(stderr, "%s\n", line.c_str());
}

void register_handlers() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (std::atexit(&shutdown) != 0 || kForkHandler != 0)
      throw Error("openreg: cannot register the exit and fork handlers: out of memory");
    g_handlers.store(true, std::memory_order_release);
    print_unknown_settings();
  });
}

void begin_schedule() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (const Schedule begin = schedule(); begin != Schedule{}) adversary::apply(begin);
  });
}

}  // namespace

void shutdown() noexcept {
  // A command that calls exit() cannot be waited for, nor can those that wait for it.
  const bool may_wait = !in_command();
  if (may_wait && works(phase())) run_queued();
  Phase before = phase();
  do {
    if (before == Phase::kShutDown || before == Phase::kForked) return;
    if (works(before)) Scheduler::get().stop();  // first: no queued command runs after it
  } while (!g_phase.compare_exchange_weak(before, Phase::kShutDown, std::memory_order_acq_rel));
  reach(TestPoint::kShutDown);
  faults::print_summary();
  if (!g_used.load(std::memory_order_acquire)) return;
  Scheduler::get().stop();  // also if another thread was beginning to use the device
  if (may_wait) Scheduler::get().wait_until_stopped();
  print_uncollected();
}

void restrict_to_this_thread() noexcept {
  Phase before = phase();
  if (before != Phase::kUnused && before != Phase::kInUse) return;
  if (before == Phase::kInUse) {
    if (in_command() || !run_queued()) {
      shutdown();
      return;
    }
    print_uncollected();
  }
  g_last_user = std::this_thread::get_id();
  // If another thread begins to use the device at this time, it may go on.
  g_phase.compare_exchange_strong(before, Phase::kRestricted, std::memory_order_acq_rel);
}

int forks() noexcept { return g_forks.load(std::memory_order_relaxed); }
bool in_bad_fork() noexcept { return phase() == Phase::kForked; }
bool is_in_use() noexcept { return works(phase()); }
bool is_shut_down() noexcept { return phase() == Phase::kShutDown; }

void check_usable() {
  switch (phase()) {
    case Phase::kUnused:
    case Phase::kInUse:
      return;
    case Phase::kRestricted:
      if (is_last_user()) return;
      [[fallthrough]];
    case Phase::kShutDown:
      throw Error("openreg: the device has been shut down; the process is about to exit");
    case Phase::kForked:
      throw_forked();
  }
}

void begin_use() {
  const Phase now = phase();
  if (works(now) || now == Phase::kShutDown) return;
  if (now == Phase::kRestricted && !is_last_user()) return;
  if (now == Phase::kForked) throw_forked();
  register_handlers();
  apply_launch_site_setting();
  Scheduler::get().start();
  begin_schedule();
  if (settings().executor_process) RemoteRunner::begin_use(current_callbacks().find_remote_runner);
  faults::start();
  g_used.store(true);
  // Before another thread can find the device in use and use it.
  if (const auto begin = current_callbacks().begin_use) begin();
  Phase before = Phase::kUnused;
  g_phase.compare_exchange_strong(before, Phase::kInUse, std::memory_order_acq_rel);
}

bool is_initialized() noexcept {
  return g_used.load() || AddressSpace::get_if_reserved() != nullptr;
}

}  // namespace openreg
