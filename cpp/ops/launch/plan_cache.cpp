#include "ops/launch/plan_cache.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/launch_counters.h"
#include "base/per_thread.h"

namespace openreg::ops {

namespace {

/// All plans, by the hash of their signature. Leaked, because launches may happen during static
/// destruction.
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
    auto cached = std::make_shared<const CachedPlan>(signature, std::move(plan));
    cached->last_used.store(++made_, std::memory_order_relaxed);
    plans_.emplace(signature.hash, cached);
    return cached;
  }

  /// The time for plans: how many have been made.
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
  /// Changes when all plans are forgotten.
  std::uint64_t epoch() const noexcept { return epoch_.load(std::memory_order_relaxed); }

 private:
  PlanPtr find_locked(const SignatureView& signature) const {
    const auto [begin, end] = plans_.equal_range(signature.hash);
    for (auto it = begin; it != end; ++it) {
      if (it->second->signature == signature) return it->second;
    }
    return nullptr;
  }

  // An eighth at a time, so that the cost per plan is small.
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
class RecentPlans {
 public:
  /// The plan in the signature's slot, whatever its own signature is; null if there is none.
  const CachedPlan* look(const SignatureView& signature, std::uint64_t epoch) {
    if (epoch_ != epoch) {
      for (auto& plan : plans_) retire(plan);
      epoch_ = epoch;
    }
    return plans_[signature.hash % plans_.size()].get();
  }
  const CachedPlan& put(PlanPtr plan) {
    auto& place = plans_[plan->signature.hash() % plans_.size()];
    retire(place);
    place = std::move(plan);
    return *place;
  }

  void begin_use() noexcept { ++uses_; }
  void end_use() noexcept {
    if (--uses_ == 0 && !retired_.empty()) retired_.clear();
  }

 private:
  // While any plan is in use, none is destroyed.
  void retire(PlanPtr& plan) {
    if (plan != nullptr && uses_ > 0) retired_.push_back(std::move(plan));
    plan = nullptr;
  }

  std::uint64_t epoch_ = 0;
  int uses_ = 0;
  std::vector<PlanPtr> retired_;
  std::array<PlanPtr, 4096> plans_;
};

void touch(const CachedPlan& plan) {
  const auto now = Store::get().now();
  if (plan.last_used.load(std::memory_order_relaxed) != now)
    plan.last_used.store(now, std::memory_order_relaxed);
}

}  // namespace

void PlanUse::end() noexcept {
  if (auto* const recent = per_thread<RecentPlans>()) recent->end_use();
}

PlanUse PlanCache::find(const SignatureView& signature) {
  auto& store = Store::get();
  auto* const recent = per_thread<RecentPlans>();
  const CachedPlan* found = recent == nullptr ? nullptr : recent->look(signature, store.epoch());
  if (found == nullptr || !(found->signature == signature)) {
    auto stored = store.find(signature);
    if (stored == nullptr) return {};
    touch(*stored);
    backend::counters::plan_hits.add();
    if (recent == nullptr) return PlanUse(std::move(stored));
    found = &recent->put(std::move(stored));
  } else {
    touch(*found);
    backend::counters::plan_hits.add();
  }
  recent->begin_use();
  return PlanUse(*found);
}

PlanUse PlanCache::insert(const SignatureView& signature, CallPlan plan) {
  backend::counters::plans_made.add();
  return PlanUse(Store::get().insert(signature, std::move(plan)));
}

std::size_t PlanCache::size() { return Store::get().size(); }

void PlanCache::clear() { Store::get().clear(); }

}  // namespace openreg::ops
