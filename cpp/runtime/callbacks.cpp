#include "runtime/callbacks.h"

#include <atomic>

namespace openreg {

namespace {

struct Installed {
  std::atomic<decltype(Callbacks::enter_commands)> enter_commands{nullptr};
  std::atomic<decltype(Callbacks::leave_commands)> leave_commands{nullptr};
  std::atomic<decltype(Callbacks::describe)> describe{nullptr};
  std::atomic<decltype(Callbacks::begin_work)> begin_work{nullptr};
  std::atomic<decltype(Callbacks::end_work)> end_work{nullptr};
  std::atomic<decltype(Callbacks::begin_wait)> begin_wait{nullptr};
  std::atomic<decltype(Callbacks::end_wait)> end_wait{nullptr};
  std::atomic<decltype(Callbacks::works_for_room)> works_for_room{nullptr};
  std::atomic<decltype(Callbacks::check_interrupt)> check_interrupt{nullptr};
  std::atomic<decltype(Callbacks::begin_use)> begin_use{nullptr};
};
constinit Installed g_callbacks;

template <class Function>
void replace(std::atomic<Function>& installed, Function function) {
  if (function) installed.store(function, std::memory_order_release);
}

}  // namespace

void install_callbacks(const Callbacks& callbacks) {
  // The second of a pair first: a thread that sees the first also sees the second.
  replace(g_callbacks.leave_commands, callbacks.leave_commands);
  replace(g_callbacks.enter_commands, callbacks.enter_commands);
  replace(g_callbacks.describe, callbacks.describe);
  replace(g_callbacks.end_work, callbacks.end_work);
  replace(g_callbacks.begin_work, callbacks.begin_work);
  replace(g_callbacks.end_wait, callbacks.end_wait);
  replace(g_callbacks.begin_wait, callbacks.begin_wait);
  replace(g_callbacks.works_for_room, callbacks.works_for_room);
  replace(g_callbacks.check_interrupt, callbacks.check_interrupt);
  replace(g_callbacks.begin_use, callbacks.begin_use);
}

Callbacks current_callbacks() noexcept {
  Callbacks callbacks;
  callbacks.enter_commands = g_callbacks.enter_commands.load(std::memory_order_acquire);
  if (callbacks.enter_commands) {
    callbacks.leave_commands = g_callbacks.leave_commands.load(std::memory_order_acquire);
  }
  callbacks.describe = g_callbacks.describe.load(std::memory_order_acquire);
  callbacks.begin_work = g_callbacks.begin_work.load(std::memory_order_acquire);
  if (callbacks.begin_work)
    callbacks.end_work = g_callbacks.end_work.load(std::memory_order_acquire);
  callbacks.begin_wait = g_callbacks.begin_wait.load(std::memory_order_acquire);
  if (callbacks.begin_wait)
    callbacks.end_wait = g_callbacks.end_wait.load(std::memory_order_acquire);
  callbacks.works_for_room = g_callbacks.works_for_room.load(std::memory_order_acquire);
  callbacks.check_interrupt = g_callbacks.check_interrupt.load(std::memory_order_acquire);
  callbacks.begin_use = g_callbacks.begin_use.load(std::memory_order_acquire);
  return callbacks;
}

}  // namespace openreg
