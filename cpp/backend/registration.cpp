// The objects that are registered with PyTorch when the library is loaded, in order. Each line
// stores a pointer; nothing here starts a thread, reserves memory or reads a setting. Operators
// (cpp/ops), autocast (cpp/slot) and graphs (graph.cpp) register themselves by static objects,
// and Python sets the name afterwards (_slot.py).
// docs/device/index.md explains each interface.
#include <ATen/core/CachingHostAllocator.h>

#include "backend/allocator.h"
#include "backend/clean_state.h"
#include "backend/device.h"
#include "backend/guard.h"
#include "backend/hooks.h"
#include "backend/host_allocator.h"
#include "backend/profiler.h"
#include "backend/tensor_metadata.h"
#include "slot_hooks.h"

namespace openreg::backend {

namespace {

const bool kRegistered = [] {
  // Devices, streams, events. First, because with a guard this is a device type that PyTorch can
  // switch to. (The macro C10_REGISTER_GUARD_IMPL does the same.)
  c10::impl::registerDeviceGuard(kDeviceType, &device_guard());
  // Memory: of the device, and of the host for copies to and from it.
  c10::SetAllocator(kDeviceType, &device_allocator());
  at::setHostAllocator(kDeviceType, &host_allocator());
  // Presence, generators, pointers.
  register_hooks(accelerator_hooks());
  // Profiling, through Kineto and without.
  register_profiler();
  register_event_profiler();
  register_tensor_metadata(&get_tensor_metadata, &set_tensor_metadata);
  // This one goes to our own runtime: the thread state that commands run under.
  install_clean_state();
  return true;
}();

}  // namespace

}  // namespace openreg::backend
