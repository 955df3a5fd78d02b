#include "runtime/engine_gate.h"

#include <dirent.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "runtime/scheduler.h"

namespace openreg::engine_gate {

namespace {

// Shorter, and the gate would open while a host starts a process or reads a file; longer, and
// programs that depend on engines in each step would take minutes.
constexpr std::chrono::milliseconds kTick{50};
constexpr int kTicksAsleep = 4;
// A host that polls without asking the device (a spinning thread) keeps the process awake.
constexpr int kTicksAwake = 100;
// How long engines then work at least, although hosts may be busy.
constexpr int kTicksOfWork = 2;

/// Outside the scheduler's mutex in Note [Lock order].
Mutex g_mutex;
bool g_held OPENREG_GUARDED_BY(g_mutex) = false;
bool g_insists OPENREG_GUARDED_BY(g_mutex) = false;  // close() has no effect
int g_open_scopes OPENREG_GUARDED_BY(g_mutex) = 0;   // OpenScope
bool g_watched OPENREG_GUARDED_BY(g_mutex) = false;  // the watch has been started
std::atomic<bool> g_open{false};                     // written with the mutex held
std::atomic<std::uint64_t> g_closings{0};

void update() OPENREG_REQUIRES(g_mutex) {
  Scheduler::get().hold_engines(g_held && g_open_scopes == 0 &&
                                !g_open.load(std::memory_order_relaxed));
}

void set_open(bool open, bool insists) {
  const LockGuard lock(g_mutex);
  g_open.store(open, std::memory_order_relaxed);
  g_insists = insists;
  update();
}

// Whether a thread of the process other than this one computes, or would if it had a core: the
// state is the letter after the name, which is in parentheses.
bool others_are_awake() {
  DIR* const tasks = opendir("/proc/self/task");
  if (!tasks) return false;
  const std::string self = std::to_string(syscall(SYS_gettid));
  bool awake = false;
  // Only this thread uses `tasks`. NOLINTNEXTLINE(concurrency-mt-unsafe)
  for (const dirent* task = readdir(tasks); task && !awake; task = readdir(tasks)) {
    const std::string name = task->d_name;
    if (name == self || name.starts_with('.')) continue;
    std::ifstream file("/proc/self/task/" + name + "/stat");
    std::string text;
    std::getline(file, text);
    const auto end = text.rfind(')');
    awake = end != std::string::npos && text.compare(end, 3, ") S") != 0 &&
            text.compare(end, 3, ") Z") != 0;
  }
  closedir(tasks);
  return awake;
}

bool has_ready(const Scheduler& scheduler) {
  return scheduler.has_ready(EngineKind::kCompute) || scheduler.has_ready(EngineKind::kCopy);
}

// Counts the time since hosts last worked, in ticks.
class Watch {
 public:
  void run() {
    while (true) {
      std::this_thread::sleep_for(kTick);
      tick();
    }
  }

 private:
  void tick() {
    const Scheduler& scheduler = Scheduler::get();
    if (insisted_ > 0 && --insisted_ == 0) set_open(false, false);
    const auto closings = g_closings.load(std::memory_order_relaxed);
    const bool was_closed = std::exchange(closings_, closings) != closings;
    if (!scheduler.holds_engines() || !has_ready(scheduler)) return restart();
    ++awake_;
    asleep_ = was_closed || others_are_awake() ? 0 : asleep_ + 1;
    if (asleep_ == kTicksAsleep) {
      restart();
      set_open(true, false);
    } else if (awake_ == kTicksAwake) {
      restart();
      insisted_ = kTicksOfWork;
      set_open(true, true);
    }
  }
  void restart() { asleep_ = awake_ = 0; }

  std::uint64_t closings_ = 0;
  int asleep_ = 0;
  int awake_ = 0;     // or asleep
  int insisted_ = 0;  // ticks that engines may still work
};

void start_watch() {
  try {
    start_detached_thread("openreg-watch", [] { Watch().run(); });
  } catch (const std::system_error& refused) {
    throw Error("openreg: cannot start the thread that adversarial schedules need: " +
                refused.code().message() + "; raise `ulimit -u`");
  }
}

}  // namespace

void hold_engines(bool held) {
  const LockGuard lock(g_mutex);
  if (held && !g_watched) {
    start_watch();
    g_watched = true;
  }
  g_held = held;
  g_open.store(false, std::memory_order_relaxed);
  g_insists = false;
  update();
}

void close() noexcept {
  g_closings.fetch_add(1, std::memory_order_relaxed);
  if (!g_open.load(std::memory_order_relaxed)) return;
  const LockGuard lock(g_mutex);
  if (g_insists) return;
  g_open.store(false, std::memory_order_relaxed);
  update();
}

void open() noexcept { set_open(true, false); }

OpenScope::OpenScope() noexcept {
  const LockGuard lock(g_mutex);
  ++g_open_scopes;
  if (g_held) update();
}

OpenScope::~OpenScope() {
  const LockGuard lock(g_mutex);
  --g_open_scopes;
  if (g_held) update();
}

}  // namespace openreg::engine_gate
