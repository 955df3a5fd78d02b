// The hooks: what PyTorch asks of a device and has no interface of its own. The base class raises
// in most of these functions, so all of them are here.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "device.h"
#include "driver/memory.h"
#include "generator.h"
#include "pinned.h"
#include "resize.h"

namespace torch_acme {

namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  // These three must not initialise the device.
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return driver::kDevices; }

  // Has the device been used? A backward pass asks, and then takes note of the current stream.
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return driver::is_used(checked(device));
  }
  void init() const override {}

  // The current device, again. It must be that of the guard.
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto previous = current_device();
    set_device(device);
    return previous;
  }
  // The index may be -1: no device, nothing to do.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }

  // Tensor.pin_memory(), DataLoader(pin_memory=True)
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator(); }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }

  c10::Device getDeviceFromPtr(void* data) const override {
    const int device = driver::device_of(data);
    TORCH_CHECK(device != -1, "acme: this is not device memory (got address ", data, ")");
    return {kAcme, static_cast<c10::DeviceIndex>(device)};
  }

  // UntypedStorage.resize_, which FSDP uses
  void resizePrivateUse1Bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(storage, bytes);
  }

  // torch.manual_seed, and torch.Generator(device=...)
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(checked(device));
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(checked(device));
  }
};

// PyTorch keeps the pointer until the process ends.
[[maybe_unused]] const bool kRegistered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

}  // namespace torch_acme
