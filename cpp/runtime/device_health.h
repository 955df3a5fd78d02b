#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/device_error.h"
#include "base/settings.h"
#include "runtime/failure.h"

namespace openreg {

namespace detail {
extern constinit std::array<std::atomic<Health>, kMaxDevices> g_health;
[[noreturn]] void throw_device_error(int device);
}  // namespace detail

/// The device exists. Thread safe, as all functions here.
inline Health health_of(int device) noexcept {
  return detail::g_health[static_cast<std::size_t>(device)].load(std::memory_order_acquire);
}

/// Throws DeviceError if the device has failed or is lost.
inline void check_healthy(int device) {
  if (health_of(device) > Health::kStopped) [[unlikely]]
    detail::throw_device_error(device);
}
/// Throws DeviceError unless the device can run kernels.
inline void check_runs_kernels(int device) {
  if (health_of(device) != Health::kHealthy) [[unlikely]]
    detail::throw_device_error(device);
}

/// A command of the device failed. With TORCH_OPENREG_STICKY_ERRORS=1 the device has failed: what
/// is queued is skipped, and each later call throws. Called with no lock held.
void note_device_failure(int device, const FailurePtr& failure) noexcept;

/// The device's executor has ended: each later call that launches a kernel throws. Nothing happens
/// if the device has failed or is lost.
void stop_device(int device, const std::string& reason);

/// The device is lost: as above. Nothing happens if it is lost already.
void lose_device(int device, const std::string& reason);

/// Makes the device usable, with a new executor if it had one. Waits for it, and calls `before`,
/// which may overwrite its memory. Returns the failures that no call has raised, as sentences.
/// Throws as drain_device() does.
std::vector<std::string> reset_health(
    int device, const std::function<void()>& before = [] {});

}  // namespace openreg
