#pragma once

#include <utility>

#include "ops/launch/call_plan.h"

namespace openreg::ops {

/// Keeps a plan alive while the calling thread uses it, even if the thread makes other plans. If
/// the plan is among the thread's recent ones, this takes no atomic operation. Must not be passed
/// to another thread.
class PlanUse {
 public:
  PlanUse() = default;
  PlanUse(PlanUse&& other) noexcept
      : plan_(std::exchange(other.plan_, nullptr)), owned_(std::move(other.owned_)) {}
  PlanUse& operator=(PlanUse&& other) noexcept {
    std::swap(plan_, other.plan_);
    owned_.swap(other.owned_);
    return *this;
  }
  ~PlanUse() {
    if (plan_ != nullptr && owned_ == nullptr) end();
  }

  explicit operator bool() const noexcept { return plan_ != nullptr; }
  const CachedPlan& operator*() const noexcept { return *plan_; }
  const CachedPlan* operator->() const noexcept { return plan_; }

 private:
  friend class PlanCache;
  explicit PlanUse(PlanPtr owned) noexcept : plan_(owned.get()), owned_(std::move(owned)) {}
  explicit PlanUse(const CachedPlan& recent) noexcept : plan_(&recent) {}
  static void end() noexcept;

  const CachedPlan* plan_ = nullptr;
  PlanPtr owned_;  // null: it is among the thread's recent plans
};

/// The plans of the process. Bounded: the least recently used ones are dropped. Each thread keeps
/// the plans that it used last, and finds those without a lock. Thread safe.
class PlanCache {
 public:
  /// Maximum number of plans that are kept.
  static constexpr std::size_t kMost = 65536;

  /// Finds a plan. The result is empty if there is none.
  static PlanUse find(const SignatureView& signature);
  /// Keeps a plan and returns it; if another thread was faster, keeps and returns that thread's
  /// plan.
  static PlanUse insert(const SignatureView& signature, CallPlan plan);
  /// Number of plans.
  static std::size_t size();
  /// Forgets all plans, for tests.
  static void clear();
};

}  // namespace openreg::ops
