#include "runtime/hooks.h"

#include <atomic>

namespace openreg {

namespace {

struct Installed {
  std::atomic<decltype(Hooks::enter_commands)> enter_commands{nullptr};
  std::atomic<decltype(Hooks::leave_commands)> leave_commands{nullptr};
  std::atomic<decltype(Hooks::describe)> describe{nullptr};
  std::atomic<decltype(Hooks::begin_work)> begin_work{nullptr};
  std::atomic<decltype(Hooks::end_work)> end_work{nullptr};
  std::atomic<decltype(Hooks::begin_wait)> begin_wait{nullptr};
  std::atomic<decltype(Hooks::end_wait)> end_wait{nullptr};
  std::atomic<decltype(Hooks::works_for_room)> works_for_room{nullptr};
  std::atomic<decltype(Hooks::check_interrupt)> check_interrupt{nullptr};
};
constinit Installed g_hooks;

template <class Function>
void replace(std::atomic<Function>& installed, Function function) {
  if (function) installed.store(function, std::memory_order_release);
}

}  // namespace

void install_hooks(const Hooks& hooks) {
  // The second of a pair first: who sees the first sees the second.
  replace(g_hooks.leave_commands, hooks.leave_commands);
  replace(g_hooks.enter_commands, hooks.enter_commands);
  replace(g_hooks.describe, hooks.describe);
  replace(g_hooks.end_work, hooks.end_work);
  replace(g_hooks.begin_work, hooks.begin_work);
  replace(g_hooks.end_wait, hooks.end_wait);
  replace(g_hooks.begin_wait, hooks.begin_wait);
  replace(g_hooks.works_for_room, hooks.works_for_room);
  replace(g_hooks.check_interrupt, hooks.check_interrupt);
}

Hooks current_hooks() noexcept {
  Hooks hooks;
  hooks.enter_commands = g_hooks.enter_commands.load(std::memory_order_acquire);
  if (hooks.enter_commands) {
    hooks.leave_commands = g_hooks.leave_commands.load(std::memory_order_acquire);
  }
  hooks.describe = g_hooks.describe.load(std::memory_order_acquire);
  hooks.begin_work = g_hooks.begin_work.load(std::memory_order_acquire);
  if (hooks.begin_work) hooks.end_work = g_hooks.end_work.load(std::memory_order_acquire);
  hooks.begin_wait = g_hooks.begin_wait.load(std::memory_order_acquire);
  if (hooks.begin_wait) hooks.end_wait = g_hooks.end_wait.load(std::memory_order_acquire);
  hooks.works_for_room = g_hooks.works_for_room.load(std::memory_order_acquire);
  hooks.check_interrupt = g_hooks.check_interrupt.load(std::memory_order_acquire);
  return hooks;
}

}  // namespace openreg
