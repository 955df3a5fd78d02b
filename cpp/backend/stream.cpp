#include "backend/stream.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <mutex>

#include "backend/exception.h"
#include "backend/thread_current.h"
#include "base/device_name.h"
#include "runtime/process.h"
#include "slot_trace.h"

namespace openreg::backend {

namespace {

constexpr std::size_t kStreamsPerPool = 32;

// Hands out its streams in turn; each is made when it is first handed out.
class StreamRing {
 public:
  openreg::Stream& next(c10::DeviceIndex device, Priority priority) {
    const std::lock_guard lock(mutex_);
    auto*& slot = streams_[turn_++ % kStreamsPerPool];
    if (slot == nullptr) slot = &create_stream(device, priority);
    return *slot;
  }

 private:
  std::mutex mutex_;
  std::array<openreg::Stream*, kStreamsPerPool> streams_{};
  std::size_t turn_ = 0;
};

// Leaked: a thread that outlives static destruction may still request a stream.
StreamRing& pool(c10::DeviceIndex device, Priority priority) {
  static auto& pools = *new std::array<std::array<StreamRing, 2>, kMaxDevices>;
  return pools[device_slot(device)][priority == Priority::kHigh ? 1 : 0];
}

}  // namespace

openreg::Stream& current_stream(c10::DeviceIndex device) {
  auto& current = thread_current();
  if (device == -1) device = current.device;
  if (const auto slot = device_slot(device); slot < kMaxDevices) {
    if (auto* stream = current.streams[slot]) return *stream;
  }
  const auto index = resolve_device(device);
  auto& stream = translate_errors([&]() -> openreg::Stream& { return default_stream(index); });
  current.streams[device_slot(index)] = &stream;  // the next call finds it at once
  return stream;
}

openreg::Stream& exchange_current_stream(openreg::Stream& stream) {
  const auto device = static_cast<c10::DeviceIndex>(stream.device());
  auto& previous = current_stream(device);
  thread_current().streams[device_slot(device)] = &stream;
  thread_current().has_streams = true;
  return previous;
}

openreg::Stream& to_runtime(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == kDeviceType,
              "openreg: the stream has the wrong device type (got ", stream.device(),
              ", expected a stream of type ", kDeviceName, ")");
  // Most calls name the current stream: autograd gets it, and sets it again, at each node.
  auto& current = current_stream(stream.device_index());
  if (current.id() == stream.id()) return current;
  return translate_errors(
      [&]() -> openreg::Stream& { return find_stream(current.device(), stream.id()); });
}

c10::Stream to_torch(const openreg::Stream& stream) {
  const c10::Device device(kDeviceType, static_cast<c10::DeviceIndex>(stream.device()));
  return c10::Stream(c10::Stream::UNSAFE, device, stream.id());
}

std::uintptr_t handle_of(const openreg::Stream& stream) {
  return stream.id() == 0 ? 0 : reinterpret_cast<std::uintptr_t>(&stream);
}

void trace_synchronization([[maybe_unused]] const openreg::Stream& stream) {
  trace_call(
      [&](const auto& to) { to.trace_gpu_stream_synchronization(kDeviceType, handle_of(stream)); });
}

openreg::Stream& stream_from_pool(c10::DeviceIndex device, Priority priority) {
  const auto index = resolve_device(device);
  return translate_errors([&]() -> openreg::Stream& {
    check_usable();
    return pool(index, priority).next(index, priority);
  });
}

}  // namespace openreg::backend
