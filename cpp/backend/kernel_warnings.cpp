#include "backend/kernel_warnings.h"

#include <atomic>
#include <mutex>
#include <typeinfo>
#include <utility>
#include <vector>

namespace openreg::backend {

namespace {

class Keeper final : public c10::WarningHandler {
  static constexpr std::size_t kMost = 100;  // a bound for programs that never wait

 public:
  void process(const c10::Warning& warning) override {
    const std::lock_guard lock(mutex_);
    if (kept_.size() == kMost) return;
    kept_.push_back(warning);
    any_.store(true, std::memory_order_relaxed);
  }

  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }

  std::vector<c10::Warning> take() {
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(kept_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<c10::Warning> kept_;
  std::atomic<bool> any_{false};
};

std::atomic<bool> g_python{false};

// Leaked: engines may run while static objects are destroyed.
Keeper& the_keeper() {
  static auto& keeper = *new Keeper;
  return keeper;
}

}  // namespace

c10::WarningHandler& KernelWarnings::keeper() { return the_keeper(); }

void KernelWarnings::python_handles_warnings() noexcept {
  g_python.store(true, std::memory_order_relaxed);
}

bool KernelWarnings::has_no_handler() {
  const auto* handler = c10::WarningUtils::get_warning_handler();
  return g_python.load(std::memory_order_relaxed) &&
         typeid(*handler) == typeid(c10::WarningHandler);
}

void KernelWarnings::raise_kept() {
  if (!the_keeper().any() || has_no_handler()) return;
  for (const auto& warning : the_keeper().take()) c10::warn(warning);
}

}  // namespace openreg::backend
