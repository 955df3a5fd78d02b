#include "backend/kernel_warnings.h"

#include <atomic>
#include <mutex>
#include <typeinfo>
#include <utility>
#include <vector>

namespace openreg::backend {

namespace {

class PendingWarnings final : public c10::WarningHandler {
  static constexpr std::size_t kMost = 100;  // a bound for programs that never wait

 public:
  void process(const c10::Warning& warning) override {
    const std::lock_guard lock(mutex_);
    if (warnings_.size() == kMost) return;
    warnings_.push_back(warning);
    any_.store(true, std::memory_order_relaxed);
  }

  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }

  std::vector<c10::Warning> take() {
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(warnings_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<c10::Warning> warnings_;
  std::atomic<bool> any_{false};
};

std::atomic<bool> g_python{false};

// Leaked: engines may run while static objects are destroyed.
PendingWarnings& pending_warnings() {
  static auto& warnings = *new PendingWarnings;
  return warnings;
}

}  // namespace

c10::WarningHandler& KernelWarnings::engine_handler() { return pending_warnings(); }

void KernelWarnings::python_handles_warnings() noexcept {
  g_python.store(true, std::memory_order_relaxed);
}

bool KernelWarnings::has_no_handler() {
  const auto* handler = c10::WarningUtils::get_warning_handler();
  return g_python.load(std::memory_order_relaxed) &&
         typeid(*handler) == typeid(c10::WarningHandler);
}

void KernelWarnings::emit_pending() {
  if (!pending_warnings().any() || has_no_handler()) return;
  for (const auto& warning : pending_warnings().take()) c10::warn(warning);
}

}  // namespace openreg::backend
