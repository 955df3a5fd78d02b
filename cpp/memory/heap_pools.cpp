// Heap: which pool an allocation comes from.
#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/error.h"
#include "memory/heap.h"

namespace openreg::memory {

PoolId new_pool_id(bool of_graph) noexcept {
  static std::atomic<PoolId::first_type> last{0};
  const auto number = ++last;
  return of_graph ? PoolId{number, 0} : PoolId{0, number};
}

Pool& Heap::newest_route(const Stream& stream) {
  const auto newest = std::find_if(routes_.rbegin(), routes_.rend(),
                                   [&](const Route& route) { return route.filter(stream); });
  return newest == routes_.rend() ? default_pool_ : *newest->pool;
}

Pool& Heap::existing(PoolId id) {
  const auto found = private_pools_.find(id);
  if (found == private_pools_.end()) {
    throw Error("openreg: there is no such memory pool (got (" + std::to_string(id.first) + ", " +
                std::to_string(id.second) + "))");
  }
  return found->second;
}

void Heap::add_use(PoolId id) {
  if (id == PoolId{}) throw Error("openreg: (0, 0) is the default memory pool, not a private one");
  const auto [found, is_new] = private_pools_.try_emplace(id, id);
  if (is_new) found->second.reset(policy_.is_cudas());
  ++found->second.uses;
}

void Heap::remove_use(PoolId id) {
  auto& pool = existing(id);
  // The uses of routes end with the routes: a route must not lead to a pool that is gone.
  if (pool.uses <= std::ranges::count(routes_, &pool, &Route::pool))
    throw Error("openreg: a memory pool was released more often than it was used");
  --pool.uses;
  forget_if_given_up(pool);
}

int Heap::uses(PoolId id) const {
  const auto found = private_pools_.find(id);
  return found == private_pools_.end() ? 0 : found->second.uses;
}

void Heap::set_use_on_oom(PoolId id, bool value) { existing(id).use_on_oom = value; }

void Heap::set_no_split(PoolId id, bool value) { existing(id).no_split = value; }

int Heap::add_route(PoolId id, Filter filter) {
  add_use(id);
  routes_.push_back({++last_route_, &existing(id), std::move(filter)});
  return last_route_;
}

void Heap::remove_route(int id) {
  const auto found = std::ranges::find(routes_, id, &Route::id);
  if (found == routes_.end()) throw Error("openreg: this use of a memory pool has already ended");
  const PoolId pool = found->pool->id();
  routes_.erase(found);
  remove_use(pool);
}

void Heap::forget_if_given_up(Pool& pool) {
  if (!pool.is_default() && pool.uses == 0 && pool.segments == 0) private_pools_.erase(pool.id());
}

}  // namespace openreg::memory
