#include "device.h"

#include <c10/util/Exception.h>

#include <array>

#include "driver/memory.h"

namespace torch_acme {

namespace {

thread_local c10::DeviceIndex device = 0;
thread_local std::array<int, driver::kDevices> streams{};  // ids; 0 is the default stream

}  // namespace

c10::DeviceIndex current_device() noexcept { return device; }

c10::DeviceIndex checked(c10::DeviceIndex index) {
  if (index == -1) return device;
  TORCH_CHECK(index >= 0 && index < driver::kDevices, "acme: there is no such device (got index ",
              static_cast<int>(index), ", expected less than ", driver::kDevices, ")");
  return index;
}

void set_device(c10::DeviceIndex index) { device = checked(index); }

void set_device_unchecked(c10::DeviceIndex index) noexcept {
  if (index >= 0) device = index;
}

driver::Stream& current_stream(c10::DeviceIndex index) {
  const auto on = checked(index);
  return driver::stream(on, streams[on]);
}

driver::Stream& exchange_stream(driver::Stream& stream) {
  auto& previous = current_stream(static_cast<c10::DeviceIndex>(stream.device()));
  streams[stream.device()] = stream.id();
  return previous;
}

c10::Stream to_torch(const driver::Stream& stream) {
  const c10::Device device(kAcme, static_cast<c10::DeviceIndex>(stream.device()));
  return c10::Stream(c10::Stream::UNSAFE, device, stream.id());
}

driver::Stream& to_driver(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == kAcme && stream.id() >= 0 && stream.id() < driver::kStreams,
              "acme: this is not a stream of the device (got ", stream, ")");
  return driver::stream(checked(stream.device_index()), static_cast<int>(stream.id()));
}

}  // namespace torch_acme
