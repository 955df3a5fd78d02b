#include "runtime/device_health.h"

#include <exception>
#include <memory>
#include <utility>

#include "base/device_name.h"
#include "base/mutex.h"
#include "runtime/fault_table.h"
#include "runtime/remote_runner.h"
#include "runtime/stream.h"
#include "runtime/stream_pool.h"

namespace openreg {

constinit std::array<std::atomic<Health>, kMaxDevices> detail::g_health{};

namespace {

class Reasons {
 public:
  static Reasons& get() {
    static Reasons& reasons = *new Reasons;  // leaked: devices are used until the process ends
    return reasons;
  }

  // False: the device is at least as ill already.
  bool set(int device, Health health, std::string reason, FailurePtr failure = nullptr) {
    const auto index = static_cast<std::size_t>(device);
    const LockGuard lock(mutex_);
    if (health_of(device) >= health && health != Health::kHealthy) return false;
    reasons_[index] = {std::move(reason), std::move(failure)};
    detail::g_health[index].store(health, std::memory_order_release);
    return true;
  }

  [[noreturn]] void raise(int device) {
    const auto name = device_name(device);
    const auto way_out = std::string(kModule) + ".reset_device(" + std::to_string(device) + ")";
    const LockGuard lock(mutex_);
    const auto& [reason, failure] = reasons_[static_cast<std::size_t>(device)];
    if (failure) failure->set_collected();
    if (health_of(device) == Health::kStopped) {
      throw DeviceError(name + ": the device is lost: " + reason +
                            ". Each call that launches a kernel on it raises this error; its "
                            "tensors can be copied to the CPU, other devices can be used, and " +
                            way_out + " starts a new process",
                        Health::kLost);
    }
    if (health_of(device) == Health::kLost) {
      throw DeviceError(name + ": the device is lost: " + reason +
                            ". Each call that needs it raises this error; other devices can be "
                            "used, and " +
                            way_out + " makes this one usable again",
                        Health::kLost);
    }
    throw DeviceError(reason + ". Each later call that needs " + name +
                          " raises this error (TORCH_OPENREG_STICKY_ERRORS=1), until the process "
                          "ends or " +
                          way_out,
                      Health::kFailed);
  }

 private:
  struct Reason {
    std::string text;
    FailurePtr failure;  // that of a command
  };

  Mutex mutex_;
  std::array<Reason, kMaxDevices> reasons_ OPENREG_GUARDED_BY(mutex_);
};

// What is queued is skipped. Streams that are made later get no work, because the calls throw.
void skip_queued(int device, const FailurePtr& failure) {
  for (StreamImpl* const stream : StreamPool::of(device).streams()) stream->failure.put(failure);
}

}  // namespace

void detail::throw_device_error(int device) {
  // A concurrent reset may have made it healthy: then the error is that of a moment ago.
  Reasons::get().raise(device);
}

void note_device_failure(int device, const FailurePtr& failure) noexcept {
  try {
    if (!settings().sticky_errors) return;
    if (Reasons::get().set(device, Health::kFailed, failure->describe(), failure))
      skip_queued(device, failure);
  } catch (const std::exception&) {  // no memory: the stream has the failure
  }
}

void stop_device(int device, const std::string& reason) {
  Reasons::get().set(device, Health::kStopped, reason);
}

void lose_device(int device, const std::string& reason) {
  if (!Reasons::get().set(device, Health::kLost, reason)) return;
  const auto failure = std::make_shared<Failure>(
      "a command", 0, device, 0,
      std::make_exception_ptr(InjectedError("openreg: the device is lost: " + reason)));
  failure->set_collected();  // the call at which it was lost raises it
  skip_queued(device, failure);
  faults::release_hung(device);
}

std::vector<std::string> reset_health(int device, const std::function<void()>& before) {
  auto& pool = StreamPool::of(device);
  RemoteRunner* const remote = RemoteRunner::of(device);
  const bool had_process = remote && remote->end();
  faults::release_hung(device);
  drain_device(device);
  std::vector<std::string> uncollected;
  while (const FailurePtr failure = pool.take_oldest_failure()) {
    if (!failure->set_collected()) uncollected.push_back(failure->describe());
  }
  before();
  if (had_process) remote->start();
  Reasons::get().set(device, Health::kHealthy, {});
  return uncollected;
}

}  // namespace openreg
