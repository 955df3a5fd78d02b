#include "runtime/callbacks.h"

#include <atomic>

#include "runtime/mutex.h"

namespace openreg {

namespace {

// A table never changes and is never freed, because other threads may still read it; a process
// installs a few.
struct Table {
  Callbacks callbacks;
  const Table* previous = nullptr;
};
constinit const Table kNone;
constinit std::atomic<const Table*> g_table{&kNone};
constinit Mutex g_install_mutex;

template <class Function>
void replace(Function& installed, Function function) {
  if (function) installed = function;
}

}  // namespace

void install_callbacks(const Callbacks& callbacks) {
  const LockGuard lock(g_install_mutex);
  const Table* const previous = g_table.load(std::memory_order_relaxed);
  auto* const table = new Table{previous->callbacks, previous};
  replace(table->callbacks.enter_commands, callbacks.enter_commands);
  replace(table->callbacks.leave_commands, callbacks.leave_commands);
  replace(table->callbacks.describe, callbacks.describe);
  replace(table->callbacks.begin_work, callbacks.begin_work);
  replace(table->callbacks.end_work, callbacks.end_work);
  replace(table->callbacks.begin_wait, callbacks.begin_wait);
  replace(table->callbacks.end_wait, callbacks.end_wait);
  replace(table->callbacks.works_for_room, callbacks.works_for_room);
  replace(table->callbacks.check_interrupt, callbacks.check_interrupt);
  replace(table->callbacks.begin_use, callbacks.begin_use);
  replace(table->callbacks.launch_site, callbacks.launch_site);
  replace(table->callbacks.describe_launch_site, callbacks.describe_launch_site);
  g_table.store(table, std::memory_order_release);
}

const Callbacks& current_callbacks() noexcept {
  return g_table.load(std::memory_order_acquire)->callbacks;
}

}  // namespace openreg
