#include "backend/launch_statistics.h"

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

namespace openreg::backend {

namespace {

using Counters =
    std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(LaunchCounter::kCount)>;

struct alignas(64) ThreadCounters {
  Counters counters{};
};

/// The counters of all threads, including ended ones. A thread that ends leaves its counters to the
/// next new one. Leaked, because threads count during static destruction.
class Registry {
 public:
  static Registry& get() {
    static auto* registry = new Registry;
    return *registry;
  }

  ThreadCounters* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return all_.emplace_back(new ThreadCounters);
    auto* const counters = free_.back();
    free_.pop_back();
    return counters;
  }
  void give(ThreadCounters* counters) {
    const std::lock_guard lock(mutex_);
    free_.push_back(counters);
  }

  std::uint64_t sum(std::size_t counter) {
    const std::lock_guard lock(mutex_);
    return sum_locked(counter) - before_reset_[counter];
  }
  void reset() {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < before_reset_.size(); ++i) before_reset_[i] = sum_locked(i);
  }

 private:
  std::uint64_t sum_locked(std::size_t counter) const {
    std::uint64_t total = 0;
    for (const auto* each : all_) total += each->counters[counter].load(std::memory_order_relaxed);
    return total;
  }

  std::mutex mutex_;
  std::vector<ThreadCounters*> all_;
  std::vector<ThreadCounters*> free_;
  std::array<std::uint64_t, static_cast<std::size_t>(LaunchCounter::kCount)> before_reset_{};
};

constinit thread_local ThreadCounters* t_counters = nullptr;

struct Owner {
  ~Owner() { Registry::get().give(t_counters); }
};

ThreadCounters& begin_counting() {
  t_counters = Registry::get().take();
  // Counts that the thread adds after this is destroyed are still included.
  thread_local Owner owner;
  static_cast<void>(owner);
  return *t_counters;
}

}  // namespace

void count(LaunchCounter counter, std::uint64_t by) noexcept {
  auto& counters = t_counters != nullptr ? *t_counters : begin_counting();
  auto& place = counters.counters[static_cast<std::size_t>(counter)];
  place.store(place.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

std::uint64_t counted(LaunchCounter counter) noexcept {
  return Registry::get().sum(static_cast<std::size_t>(counter));
}

void reset_launch_counters() noexcept { Registry::get().reset(); }

}  // namespace openreg::backend
