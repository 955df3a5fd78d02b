#include "backend/guard.h"

#include <c10/core/DeviceCapability.h>
#include <c10/util/Exception.h>

#include <cstdint>

#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "backend/kernel_warnings.h"
#include "backend/stream.h"
#include "base/device_name.h"
#include "base/settings.h"
#include "memory/command_check.h"
#include "runtime/capture.h"
#include "runtime/event.h"
#include "slot_trace.h"

namespace openreg::backend {

namespace {

c10::Device torch_device(c10::DeviceIndex index) { return {kDeviceType, index}; }

// For the functions that make the host wait. After the wait, the debugger checks the device's
// memory, and the warnings of kernels that engines ran are emitted.
template <class F>
void wait(int device, F&& f) {
  translate_errors([&] {
    f();
    memory::checks::notify(&memory::CommandCheck::host_waited, device);
  });
  KernelWarnings::emit_pending();
}

openreg::Event* as_event(void* event) { return static_cast<openreg::Event*>(event); }

// PyTorch keeps one object of this class per kind of device and calls it from any thread, also from
// threads that this library did not create. So what is "current" is thread-local (device.cpp,
// stream.cpp). The functions below only translate: c10's types into the runtime's, and the
// runtime's errors into c10's. An index of -1 means the current device.
class OpenregGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  // --- Devices ---

  c10::DeviceType type() const override { return kDeviceType; }

  // Must not throw: PyTorch calls it when it looks for accelerators, as early as in `import torch`.
  // If the settings are malformed there are zero devices here, and the first use of the device
  // raises the error.
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(openreg::device_count());
  }

  c10::Device getDevice() const override { return torch_device(current_device()); }

  void setDevice(c10::Device device) const override {
    check_type(device);
    if (device.has_index())
      set_device(device.index());  // "openreg" without an index: the current one
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    const auto previous = getDevice();
    setDevice(device);
    return previous;
  }

  // Called by the destructors of guards, with the result of exchangeDevice(): it need not check,
  // and must not throw.
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) set_device_unchecked(device.index());
  }

  // The dtypes that the device supports, for torch.accelerator.get_device_capability().
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    resolve_device(device.index());
    return {};  // the default is all: every type that the CPU computes with
  }

  // Raises the oldest failure on the device; the next call raises the next one.
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    const auto device = resolve_device(index);
    trace_call([](const auto& to) { to.trace_gpu_device_synchronization(kDeviceType); });
    wait(device, [&] { synchronize_device(device); });
  }

  // --- Streams ---

  // The calling thread's current stream on the device. Autograd stores it when it makes a node, and
  // runs the node's backward on the same stream. The first call initialises the device: autograd
  // calls it only for devices that have been used (hasPrimaryContext in hooks.cpp).
  c10::Stream getStream(c10::Device device) const override {
    return to_torch(current_stream(device.index()));
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    const auto index = resolve_device(device.index());
    return translate_errors([&] { return to_torch(default_stream(index)); });
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const override {
    auto& stream =
        stream_from_pool(device.index(), is_high_priority ? Priority::kHigh : Priority::kNormal);
    trace_call(
        [&](const auto& to) { to.trace_gpu_stream_creation(kDeviceType, handle_of(stream)); });
    return to_torch(stream);
  }

  // torch.Stream(priority=...). A c10::Stream is copied freely and never returned, so it must come
  // from something that does not grow: the pool, as on CUDA. Other priorities are clamped: negative
  // is high, the rest normal.
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }

  // Does not switch devices: a caller that wants that also calls exchangeDevice(). Autograd calls
  // this for each node, so it must be fast.
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return to_torch(exchange_current_stream(to_runtime(stream)));
  }

  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &to_runtime(stream);
  }

  // Raises the failure of a command, as on CUDA: a program that polls must not mistake skipped
  // commands for completed ones.
  bool queryStream(const c10::Stream& stream) const override {
    auto& asked = to_runtime(stream);
    return translate_errors([&] { return asked.query(); });
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    auto& waited_for = to_runtime(stream);
    trace_synchronization(waited_for);
    wait(waited_for.device(), [&] { waited_for.synchronize(); });
  }

  // Whether work of the stream is captured into a graph instead of being run.
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return capture_of(to_runtime(stream)) != 0;
  }

  // --- Events ---

  // PyTorch holds an event as a void*, null until its first record; then it points to our event,
  // until destroyEvent(). An event that was never recorded is complete, and nothing waits for it.
  // `device` is that of the first record, or -1.
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "openreg: an event was recorded on two devices (got ", stream.device(),
                ", expected ", device_name(device), ", where it was recorded first)");
    auto& source = to_runtime(stream);
    const bool is_new = *event == nullptr;
    translate_errors([&] {
      if (is_new) *event = new openreg::Event(flag == c10::EventFlag::BACKEND_DEFAULT);
      as_event(*event)->record(source);
    });
    trace_call([&](const auto& to) {
      if (is_new) to.trace_gpu_event_creation(kDeviceType, number_of(*event));
      to.trace_gpu_event_record(kDeviceType, number_of(*event), handle_of(source));
    });
  }

  // Later work of `stream` waits for the newest record; the host does not.
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    auto& waiting = to_runtime(stream);
    translate_errors([&] { as_event(event)->wait(waiting); });
    trace_call([&](const auto& to) {
      to.trace_gpu_event_wait(kDeviceType, number_of(event), handle_of(waiting));
    });
  }

  bool queryEvent(void* event) const override {
    return event == nullptr || translate_errors([&] { return as_event(event)->query(); });
  }

  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    trace_call(
        [&](const auto& to) { to.trace_gpu_event_synchronization(kDeviceType, number_of(event)); });
    wait(as_event(event)->device(), [&] { as_event(event)->synchronize(); });
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(
        start != nullptr && end != nullptr,
        "openreg: elapsed_time needs two recorded events (got one that was never recorded); call "
        "its record() first");
    return translate_errors(
        [&] { return openreg::Event::elapsed_ms(*as_event(start), *as_event(end)); });
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event == nullptr) return;
    trace_call([&](const auto& to) { to.trace_gpu_event_deletion(kDeviceType, number_of(event)); });
    delete as_event(event);
  }

  // --- Memory ---

  // Autograd and DDP call this when they use a tensor on a stream other than the one that it was
  // made on. Tensor.record_stream() does the same. Without it the allocator would give the memory
  // to other work before the stream has finished with it.
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator().recordStream(data, stream);
  }

 private:
  // The handle that PyTorch's Python classes show.
  [[maybe_unused]] static std::uintptr_t number_of(const void* event) {
    return reinterpret_cast<std::uintptr_t>(event);
  }

  static void check_type(c10::Device device) {
    TORCH_CHECK(device.type() == kDeviceType, "openreg: the device has the wrong type (got ",
                device, ", expected a device of type ", kDeviceName, ")");
  }
};

}  // namespace

const c10::impl::DeviceGuardImplInterface& device_guard() {
  static const auto& guard = *new OpenregGuard;
  return guard;
}

}  // namespace openreg::backend
