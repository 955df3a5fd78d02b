#include "ops/launch/plan_cache.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "backend/launch_statistics.h"
#include "runtime/per_thread.h"

namespace openreg::ops {

namespace {

/// All plans, by the hash of their signature. Leaked: launches may come during static destruction.
class Store {
 public:
  static Store& get() {
    static auto* store = new Store;
    return *store;
  }

  PlanPtr find(const SignatureView& signature) {
    const std::shared_lock lock(mutex_);
    return find_locked(signature);
  }

  PlanPtr insert(const SignatureView& signature, CallPlan plan) {
    const std::unique_lock lock(mutex_);
    if (auto known = find_locked(signature)) return known;
    if (plans_.size() >= PlanCache::kMost) drop_oldest();
    const auto id = ++made_;
    auto kept = std::make_shared<const KeptPlan>(signature, std::move(plan), id);
    kept->last_used.store(id, std::memory_order_relaxed);
    plans_.emplace(signature.hash, kept);
    return kept;
  }

  /// Time as plans know it: how many have been made.
  std::uint64_t now() const noexcept { return made_.load(std::memory_order_relaxed); }

  std::size_t size() {
    const std::shared_lock lock(mutex_);
    return plans_.size();
  }
  void clear() {
    const std::unique_lock lock(mutex_);
    plans_.clear();
    epoch_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Changes when all plans have been forgotten.
  std::uint64_t epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }

 private:
  PlanPtr find_locked(const SignatureView& signature) const {
    const auto [begin, end] = plans_.equal_range(signature.hash);
    for (auto it = begin; it != end; ++it) {
      if (it->second->signature == signature) return it->second;
    }
    return nullptr;
  }

  // An eighth at once: then it costs little per plan.
  void drop_oldest() {
    std::vector<std::uint64_t> ages;
    ages.reserve(plans_.size());
    for (const auto& [hash, plan] : plans_)
      ages.push_back(plan->last_used.load(std::memory_order_relaxed));
    const auto nth = ages.begin() + static_cast<std::ptrdiff_t>(ages.size() / 8);
    std::nth_element(ages.begin(), nth, ages.end());
    const auto limit = *nth;
    std::erase_if(plans_, [limit](const auto& entry) {
      return entry.second->last_used.load(std::memory_order_relaxed) <= limit;
    });
  }

  std::shared_mutex mutex_;
  std::unordered_multimap<std::uint64_t, PlanPtr> plans_;
  std::atomic<std::uint64_t> made_{0};
  std::atomic<std::uint64_t> epoch_{0};
};

/// The plans that a thread used last, by the low bits of the hash.
struct AtHand {
  static constexpr std::size_t kSlots = 512;
  std::uint64_t epoch = 0;
  std::array<PlanPtr, kSlots> plans;
};

void touch(const KeptPlan& plan) {
  const auto now = Store::get().now();
  if (plan.last_used.load(std::memory_order_relaxed) != now)
    plan.last_used.store(now, std::memory_order_relaxed);
}

}  // namespace

PlanPtr PlanCache::find(const SignatureView& signature) {
  auto& store = Store::get();
  auto* const hand = per_thread<AtHand>();
  PlanPtr of_a_thread_that_ends;
  if (hand != nullptr && hand->epoch != store.epoch()) {
    hand->plans.fill(nullptr);
    hand->epoch = store.epoch();
  }
  auto& slot =
      hand == nullptr ? of_a_thread_that_ends : hand->plans[signature.hash % AtHand::kSlots];
  if (slot == nullptr || !(slot->signature == signature)) {
    auto found = store.find(signature);
    if (found == nullptr) return nullptr;
    slot = std::move(found);
  }
  touch(*slot);
  backend::count(backend::LaunchCounter::kPlanHits);
  return slot;
}

PlanPtr PlanCache::insert(const SignatureView& signature, CallPlan plan) {
  backend::count(backend::LaunchCounter::kPlansMade);
  return Store::get().insert(signature, std::move(plan));
}

std::size_t PlanCache::size() { return Store::get().size(); }

void PlanCache::clear() { Store::get().clear(); }

}  // namespace openreg::ops
