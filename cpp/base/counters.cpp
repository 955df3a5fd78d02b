#include "base/counters.h"

#include <array>
#include <atomic>
#include <cassert>
#include <mutex>
#include <vector>

namespace openreg {

namespace {

constinit std::atomic<std::size_t> g_made{0};

struct alignas(64) ThreadCounts {
  std::array<std::atomic<std::uint64_t>, Counter::kMost> counts{};
};

/// The counts of all threads, including ended ones. A thread that ends leaves its counts to the
/// next new one. Leaked, because threads count during static destruction.
class CountRegistry {
 public:
  static CountRegistry& get() {
    static auto* registry = new CountRegistry;
    return *registry;
  }

  ThreadCounts* take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return all_.emplace_back(new ThreadCounts);
    auto* const counts = free_.back();
    free_.pop_back();
    return counts;
  }
  void give(ThreadCounts* counts) {
    const std::lock_guard lock(mutex_);
    free_.push_back(counts);
  }

  std::uint64_t since_reset(std::size_t index) {
    const std::lock_guard lock(mutex_);
    return sum(index) - before_reset_[index];
  }
  void reset(std::size_t index) {
    const std::lock_guard lock(mutex_);
    before_reset_[index] = sum(index);
  }

 private:
  std::uint64_t sum(std::size_t index) const {
    std::uint64_t total = 0;
    for (const auto* each : all_) total += each->counts[index].load(std::memory_order_relaxed);
    return total;
  }

  std::mutex mutex_;
  std::vector<ThreadCounts*> all_;
  std::vector<ThreadCounts*> free_;
  std::array<std::uint64_t, Counter::kMost> before_reset_{};
};

constinit thread_local ThreadCounts* t_counts = nullptr;

struct CountOwner {
  ~CountOwner() { CountRegistry::get().give(t_counts); }
};

ThreadCounts& begin_counting() {
  t_counts = CountRegistry::get().take();
  // Events that the thread counts after this is destroyed are still included.
  thread_local CountOwner owner;
  static_cast<void>(owner);
  return *t_counts;
}

}  // namespace

Counter::Counter(const char* name) noexcept : name_(name), index_(g_made.fetch_add(1)) {
  assert(index_ < kMost);
}

void Counter::add(std::uint64_t events) noexcept {
  auto& counts = t_counts != nullptr ? *t_counts : begin_counting();
  auto& own = counts.counts[index_];
  own.store(own.load(std::memory_order_relaxed) + events, std::memory_order_relaxed);
}

std::uint64_t Counter::value() const noexcept { return CountRegistry::get().since_reset(index_); }

void Counter::reset() noexcept { CountRegistry::get().reset(index_); }

namespace counters {
Counter commands_by_engines{"commands_by_engines"};
Counter commands_by_hosts{"commands_by_hosts"};
Counter grants{"grants"};
Counter helps{"helps"};
Counter parks{"parks"};
Counter spares{"spares"};
Counter sleeps{"sleeps"};
Counter engines{"engines"};
Counter requests{"requests"};
}  // namespace counters

std::span<Counter* const> scheduler_counters() noexcept {
  static constexpr std::array<Counter*, 9> kAll{&counters::commands_by_engines,
                                                &counters::commands_by_hosts,
                                                &counters::grants,
                                                &counters::helps,
                                                &counters::parks,
                                                &counters::spares,
                                                &counters::sleeps,
                                                &counters::engines,
                                                &counters::requests};
  return kAll;
}

}  // namespace openreg
