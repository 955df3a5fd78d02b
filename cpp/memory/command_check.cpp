#include "memory/command_check.h"

#include <algorithm>

#include "runtime/happens_before.h"

namespace openreg::memory {

VectorClock& Launch::known() {
  if (order) return *order;
  auto& known = order.emplace();
  auto* const tracker = HappensBefore::get();
  if (capture != 0 || !tracker) return known;
  known = tracker->submit(stream);
  if (last) known.join(tracker->clock_of(*last));
  return known;
}

namespace checks {

constinit std::atomic<unsigned> detail::g_on{0};
constinit std::atomic<CommandCheck*> detail::g_checks[kPlaces]{};

using detail::each;
using detail::g_on;

void add(CommandCheck& check, unsigned place) {
  detail::g_checks[place] = &check;
  g_on |= 1U << place;
}

void remove(unsigned place) { g_on &= ~(1U << place); }

void enqueue_checked(Launch& launch, const std::function<void()>& enqueue) {
  unsigned asked = 0;
  try {
    each(g_on, [&](CommandCheck& check, unsigned bit) {
      asked |= bit;
      launch.graph != 0 ? check.before_replay(launch) : check.before_enqueue(launch);
    });
    auto* const order = HappensBefore::get();
    if (order && launch.last && launch.capture == 0) order->wait(launch.stream, launch.known());
    enqueue();
  } catch (...) {
    each(asked, [&](CommandCheck& check, unsigned) { check.withdrawn(launch); });
    throw;
  }
  each(asked, [&](CommandCheck& check, unsigned) { check.enqueued(launch); });
}

DeviceHeap::Allocation allocate(DeviceHeap& heap, std::size_t bytes, Stream& stream, Where* where,
                                const Context& context, std::string& refusal) {
  const unsigned on = g_on;
  if (on == 0) return heap.allocate(bytes, stream, context);
  std::size_t guard = 0;
  refusal.clear();
  each(on, [&](CommandCheck& check, unsigned) {
    if (refusal.empty()) refusal = check.before_allocation(stream);
    guard += check.guard_bytes();
  });
  const auto all = std::max(bytes, bytes + 2 * guard);  // the sum may overflow
  auto result = refusal.empty() ? heap.allocate(all, stream, context)
                                : heap.simulate_out_of_memory(all, stream, context);
  if (result.address == nullptr) return result;
  auto* const block = static_cast<std::byte*>(result.address);
  result.address = block + guard;
  const NewBlock made{.block = block,
                      .block_bytes = static_cast<std::size_t>(result.usage.bytes),
                      .address = block + guard,
                      .bytes = bytes,
                      .stream = stream,
                      .where = where};
  each(on, [&](CommandCheck& check, unsigned) { check.allocated(made); });
  return result;
}

DeviceHeap::Usage free(DeviceHeap& heap, void* address, Where* where, const Context& context) {
  if (!any()) return heap.free(address, context);
  const auto* const block = block_of(address);
  notify(&CommandCheck::freed, address, where);
  return heap.free(const_cast<void*>(block), context);
}

void record_stream(DeviceHeap& heap, void* address, Stream& stream) {
  notify(&CommandCheck::used_by_stream, address, stream);
  heap.record_stream(const_cast<void*>(block_of(address)), stream);
}

const void* block_of(const void* address) {
  each(g_on, [&](CommandCheck& check, unsigned) { address = check.block_of(address); });
  return address;
}

}  // namespace checks

}  // namespace openreg::memory
