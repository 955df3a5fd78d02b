#include "runtime/callbacks.h"

#include <atomic>

#include "base/mutex.h"

namespace openreg {

namespace {

// A table never changes and is never freed, because other threads may still read it; a process
// installs a few.
struct Table {
  Callbacks callbacks;
  const Table* previous = nullptr;  // for leak checkers, which look for what nothing refers to
};
constinit const Table kNone;
constinit std::atomic<const Table*> g_table{&kNone};
constinit Mutex g_install_mutex;

template <class... Members>
void replace_if_set(Callbacks& installed, const Callbacks& callbacks, Members... members) {
  const auto replace = [&](auto member) {
    if (callbacks.*member) installed.*member = callbacks.*member;
  };
  (replace(members), ...);
}

}  // namespace

void install_callbacks(const Callbacks& callbacks) {
  const LockGuard lock(g_install_mutex);
  const Table* const previous = g_table.load(std::memory_order_relaxed);
  auto* const table = new Table{previous->callbacks, previous};
  replace_if_set(table->callbacks, callbacks, &Callbacks::enter_commands,
                 &Callbacks::leave_commands, &Callbacks::begin_compute, &Callbacks::end_compute,
                 &Callbacks::begin_wait, &Callbacks::end_wait, &Callbacks::runs_when_full,
                 &Callbacks::check_interrupt, &Callbacks::begin_use, &Callbacks::on_host_progress,
                 &Callbacks::find_remote_runner, &Callbacks::faults_armed);
  g_table.store(table, std::memory_order_release);
}

const Callbacks& current_callbacks() noexcept {
  return g_table.load(std::memory_order_acquire)->callbacks;
}

}  // namespace openreg
