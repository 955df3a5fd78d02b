// The guard: which devices and streams exist, which are current on this thread, and in which order
// streams run. PyTorch calls it from its own threads too, such as those of backward passes, and so
// do `with torch.device(...)`, `torch.Stream`, `torch.Event` and `torch.accelerator`: a backend
// writes no Python bindings for them.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "allocator.h"
#include "device.h"
#include "driver/memory.h"

namespace torch_acme {

namespace {

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kAcme; }

  // Called during `import torch`. It must neither throw nor initialise the device: a program that
  // only asks must still be able to fork. If the driver is missing, return 0.
  c10::DeviceIndex deviceCount() const noexcept override { return driver::kDevices; }

  c10::Device getDevice() const override { return {kAcme, current_device()}; }
  void setDevice(c10::Device device) const override { set_device(device.index()); }
  c10::Device exchangeDevice(c10::Device device) const override {
    const auto previous = getDevice();
    setDevice(device);
    return previous;
  }
  // For destructors of guards, which return to a device that was current before.
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_device_unchecked(device.index());
  }

  // For torch.accelerator.get_device_capability(): all dtypes, unless bits are cleared here.
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  void synchronizeDevice(c10::DeviceIndex index) const override {
    driver::synchronize_device(checked(index));
  }

  // --- Streams. A backward pass runs each node on the stream of its forward pass. ---

  c10::Stream getStream(c10::Device device) const override {
    return to_torch(current_stream(device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return to_torch(driver::stream(checked(device.index()), 0));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    return to_torch(driver::stream_from_pool(checked(device.index()), high_priority));
  }
  // PyTorch copies streams and never returns them. So they come from a pool, or they would
  // accumulate.
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return getStreamFromGlobalPool(device, priority < 0);
  }
  // Makes the stream current on its own device, without a switch to this device.
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return to_torch(exchange_stream(to_driver(stream)));
  }
  void* getStreamNativeHandle(c10::Stream stream) const override { return &to_driver(stream); }
  bool queryStream(const c10::Stream& stream) const override { return to_driver(stream).query(); }
  void synchronizeStream(const c10::Stream& stream) const override {
    to_driver(stream).synchronize();
  }

  // --- Events. PyTorch holds a void*, which is null until the first record. ---

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device,
              c10::EventFlag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(),
                "acme: an event belongs to the device of its first record (got ", stream.device(),
                ", expected acme:", static_cast<int>(device), ")");
    auto& source = to_driver(stream);
    if (*event == nullptr) *event = new driver::Event;
    as_event(*event).record(source);
  }
  // The stream waits, the host does not.
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) as_event(event).wait(to_driver(stream));
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || as_event(event).query();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) as_event(event).synchronize();
  }
  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "acme: both events must be recorded first");
    TORCH_CHECK(queryEvent(start) && queryEvent(end), "acme: both events must have completed");
    return driver::Event::elapsed(as_event(start), as_event(end));
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override {
    delete static_cast<driver::Event*>(event);
  }

  // Autograd and DDP use a tensor on another stream. The default does nothing, and then the
  // allocator gives the memory to the next tensor while that stream still reads it.
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }

 private:
  static driver::Event& as_event(void* event) { return *static_cast<driver::Event*>(event); }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace

}  // namespace torch_acme
