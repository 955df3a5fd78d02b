#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <c10/util/SmallVector.h>
#include <optional>

#include "address_space/device_work.h"
#include "ops/launch/zero_arguments.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {

/// For code that runs CPU kernels on the calling thread: autograd and autocast have already been
/// handled above the backend.
class BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                            c10::autocast_dispatch_keyset};
};

/// Throws c10::AcceleratorError if the host's work has used device memory that is not mapped.
void check_accesses_of_host(DeviceWorkScope& work);

/// Device tensors as CPU tensors over the same memory, for a kernel that the calling thread runs
/// itself once the stream is idle. It also converts back what the kernel made and changed. One
/// alias per tensor and one storage per storage, so that identity and aliasing are preserved. An
/// alias keeps the device's memory alive. Its functions may wait for the current stream again.
class CpuAliases {
 public:
  /// `op`, which must outlive this, names the operator that accesses the memory; null: none does.
  CpuAliases(c10::Device device, const char* op)
      : device_(device),
        op_(op),
        work_({.name = op ? op : "an operator on the host", .device = device.index()}) {}

  /// The next tensors belong to this argument of the operator; for reports.
  void at_argument(std::int16_t argument) noexcept { place_ = {argument, 0}; }
  /// For the race detector: the call's arguments that are zero.
  void set_zeros(const ZeroArguments& zeros) noexcept { zeros_ = zeros; }

  /// The CPU tensor over `tensor`'s memory. `access`: what the kernel may do with it. Lazy clones
  /// that are only read continue to share their memory. `declared`: what it does, for the race
  /// detector; by default, the same. Throws throw_race_error()'s exception.
  at::Tensor alias(const at::Tensor& tensor, Access access,
                   std::optional<Access> declared = std::nullopt);

  /// Throws c10::AcceleratorError if the kernel has used device memory that is not mapped.
  void check_accesses();
  /// Calls check_accesses(). Applies to the device tensors what the kernel changed in their aliases
  /// besides the elements: sizes, strides, a longer or another storage, conj and neg bits.
  void copy_back();

  /// A kernel's result as a device tensor: the tensor whose alias it is, a view of one, or a copy.
  at::Tensor to_device(const at::Tensor& result);

 private:
  struct TensorPair {
    at::Tensor device;
    at::Tensor cpu;
  };
  struct StoragePair {
    c10::Storage device;
    c10::Storage cpu;
    const void*
        memory;  // of the CPU storage when it was made; differs after a kernel has resized it
  };

  StoragePair& storage_pair(const c10::Storage& device_storage, Access access);
  /// The device storage behind a CPU one: its pair, or a copy if the kernel made it.
  c10::Storage device_storage(const c10::Storage& cpu);
  void copy_to_device(const c10::Storage& cpu, const c10::Storage& device) const;

  c10::Device device_;
  const char* op_;
  DeviceWorkScope work_;
  ArgumentPlace place_;
  ZeroArguments zeros_;
  c10::SmallVector<TensorPair, 6> tensors_;
  c10::SmallVector<StoragePair, 6> storages_;
};

}  // namespace openreg::ops
