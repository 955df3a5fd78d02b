#include "ops/cuda_memory/gpu.h"

#include <atomic>
#include <cstdint>

#include "base/settings.h"

namespace openreg::ops::cuda_memory {

namespace {

// In one word, so that it is read without a lock.
constexpr std::uint64_t packed(const Gpu& gpu) {
  return static_cast<std::uint64_t>(gpu.major) << 56 | static_cast<std::uint64_t>(gpu.minor) << 48 |
         static_cast<std::uint64_t>(gpu.multiprocessors) << 24 |
         static_cast<std::uint64_t>(gpu.threads_per_multiprocessor);
}
constexpr int bits(std::uint64_t word, int from, int count) {
  return static_cast<int>(word >> from & ((std::uint64_t{1} << count) - 1));
}

constinit std::atomic<std::uint64_t> g_gpu{packed(Gpu{})};
constinit std::atomic<bool> g_enabled{true};

}  // namespace

Gpu gpu() noexcept {
  const auto word = g_gpu.load(std::memory_order_relaxed);
  return {bits(word, 56, 8), bits(word, 48, 8), bits(word, 24, 24), bits(word, 0, 24)};
}
void set_gpu(const Gpu& gpu) noexcept { g_gpu.store(packed(gpu), std::memory_order_relaxed); }

bool is_reproduced() { return !computes() && g_enabled.load(std::memory_order_relaxed); }
void reproduce(bool enabled) noexcept { g_enabled.store(enabled, std::memory_order_relaxed); }

}  // namespace openreg::ops::cuda_memory
