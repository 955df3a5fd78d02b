#include "ops/launch/statistics.h"

#include <array>
#include <atomic>

namespace openreg::ops {

namespace {

std::array<std::atomic<std::uint64_t>, 3> launches{};
std::atomic<std::uint64_t> host_waits{0};

std::uint64_t launched(Tier tier) noexcept {
  return launches[static_cast<std::size_t>(tier)].load(std::memory_order_relaxed);
}

}  // namespace

LaunchStats launch_stats() noexcept {
  return {launched(Tier::kStructured), launched(Tier::kBoxed), launched(Tier::kSynchronous),
          host_waits.load(std::memory_order_relaxed)};
}

void reset_launch_stats() noexcept {
  for (auto& count : launches) count.store(0, std::memory_order_relaxed);
  host_waits.store(0, std::memory_order_relaxed);
}

void count_launch(Tier tier) noexcept {
  launches[static_cast<std::size_t>(tier)].fetch_add(1, std::memory_order_relaxed);
}

void count_host_wait() noexcept { host_waits.fetch_add(1, std::memory_order_relaxed); }

}  // namespace openreg::ops
