#include "backend/hooks.h"

#include <ATen/core/CachingHostAllocator.h>

#include "address_space/address_space.h"
#include "backend/device.h"
#include "backend/exception.h"
#include "backend/generator.h"
#include "backend/host_allocator.h"
#include "backend/storage.h"
#include "base/settings.h"
#include "runtime/process.h"
#include "slot_hooks.h"

namespace openreg::backend {

namespace {

// Called by at::Context, autograd, storages, torch.Generator and torch._C._accelerator_hooks_*.
// Most functions of the base class throw, so all are overridden here. Each delegates to the file of
// its subject.
class OpenregHooks final : public SlotHooks {
 public:
  // --- Is it present? None of these throws, and none initialises the device. ---

  bool isBuilt() const override { return true; }

  bool isAvailable() const override { return openreg::device_count() > 0; }

  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(openreg::device_count());
  }

  // Whether the device has been used. A backward pass takes note of the current stream only on the
  // devices for which this is true: getStream() would initialise the others. Ours are initialised
  // together.
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return is_initialized() && device >= 0 && device < openreg::device_count();
  }

  // at::Context calls it once per process, before it first requests pinned memory or a generator.
  // The runtime makes threads and memory when they are needed, so this only raises if the device
  // cannot be used.
  void init() const override {
    translate_errors([] {
      settings();
      check_usable();
    });
  }

  // --- The current device: the same as in the guard ---

  void setCurrentDevice(c10::DeviceIndex device) const override { set_device(device); }

  c10::DeviceIndex getCurrentDevice() const override { return backend::current_device(); }

  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto previous = backend::current_device();
    set_device(device);
    return previous;
  }

  // The index may be that of no device, such as -1: then nothing changes.
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    const auto previous = backend::current_device();
    if (device >= 0 && device < openreg::device_count()) set_device(device);
    return previous;
  }

  // --- Memory ---

  // Pinned host memory, for Tensor.pin_memory() and DataLoader.
  at::Allocator* getPinnedMemoryAllocator() const override { return &host_allocator(); }

  // `data` may point into the middle of a block, as the pointer of a slice does.
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }

  // For memory that does not come from a tensor: at::from_blob calls it to learn the device.
  c10::Device getDeviceFromPtr(void* data) const override {
    const auto* space = AddressSpace::get_if_reserved();
    const int device = space != nullptr ? space->device_of(data) : -1;
    TORCH_CHECK(device != -1, "openreg: this is not device memory (got address ", data, ")");
    return {kDeviceType, static_cast<c10::DeviceIndex>(device)};
  }

  // In stream order, because queued work may still write to the storage.
  void resize_bytes(const c10::Storage& storage, std::size_t bytes) const override {
    resize_storage(storage, bytes);
  }

  // --- Random numbers: the default generator of a device, and torch.Generator(device=...) ---

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }

  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return new_generator(device);
  }
};

}  // namespace

SlotHooks& accelerator_hooks() {
  static auto& hooks = *new OpenregHooks;
  return hooks;
}

}  // namespace openreg::backend
