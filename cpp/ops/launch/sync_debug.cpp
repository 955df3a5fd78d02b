#include "ops/launch/sync_debug.h"

#include <c10/util/Exception.h>

#include <atomic>

#include "backend/launch_counters.h"
#include "backend/stream.h"
#include "base/device_name.h"

namespace openreg::ops {

namespace {

std::atomic<SyncDebugMode> g_mode{SyncDebugMode::kDefault};

}  // namespace

void set_sync_debug_mode(SyncDebugMode mode) noexcept {
  g_mode.store(mode, std::memory_order_relaxed);
}

SyncDebugMode sync_debug_mode() noexcept { return g_mode.load(std::memory_order_relaxed); }

void announce_host_wait(const openreg::Stream& stream) {
  backend::counters::host_waits.add();
  const auto mode = sync_debug_mode();
  TORCH_CHECK(mode != SyncDebugMode::kError, "called a synchronizing ", kDeviceInProse,
              " operation");
  if (mode == SyncDebugMode::kWarn)
    TORCH_WARN("called a synchronizing ", kDeviceInProse, " operation");
  backend::trace_synchronization(stream);
}

}  // namespace openreg::ops
