#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/zero_ops.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>

#include <cstring>

#include "address_space/address_space.h"
#include "backend/exception.h"
#include "backend/faults.h"
#include "backend/race_detection.h"
#include "backend/stream.h"
#include "memory/value_tracker.h"
#include "ops/launch/launch.h"
#include "ops/tensors/cpu_alias.h"
#include "ops/wire/command_layout.h"
#include "ops/wire/extent.h"
#include "runtime/event.h"
#include "runtime/trace.h"
#include "slot.h"

namespace openreg::ops {

// Note [Copies]
//
// - Within a device: a command.
// - Between devices: a command of the source's stream. It runs after the work of the destination's
//   stream, which may still use the memory, and that stream waits for it afterwards.
// - From the CPU, pinned and non_blocking: a command. The pinned block is not reused before it has
//   run.
// - From the CPU, small and non_blocking: a command that carries the elements.
// - From the CPU otherwise: waits for the stream, then the calling thread copies, as with CUDA:
//   when the call returns, every stream may read the elements.
// - To the CPU, pinned and non_blocking: a command; otherwise as above.
//
// Long copies between two memories run on the copy engine, so they overlap with kernels.
//
// ATen does the copying itself, with all conversions of dtype, strides, conj and neg bits, and
// broadcasting.
namespace {

// Arguments of aten::copy_.
constexpr std::int16_t kDestination = 0;
constexpr std::int16_t kSource = 1;
constexpr const char* kFromPageable = "aten::copy_ from memory that is not pinned";

void run_copy(const OpKernel&, ArgumentReader& reader) {
  auto& destination = reader.tensor();
  at::native::copy_(destination, reader.tensor(), /*non_blocking=*/false);
}

/// For traces: the destination and the source are the command's first two tensors.
CommandSummary summarize_copy(std::span<const std::byte> bytes) noexcept {
  const CommandView command(bytes);
  const auto& to = command.tensors()[0];
  const auto& from = command.tensors()[1];
  CommandSummary summary{.kind = CommandSummary::Kind::kCopy,
                         .from = command.place(from),
                         .to = command.place(to),
                         .bytes = bytes_of(command.numel(to), command.shape(to).type())};
  if (summary.from != MemoryKind::kDevice || summary.to != MemoryKind::kDevice) return summary;
  const auto device_of = [&](const TensorRecord& tensor) {
    return AddressSpace::get().device_of(
        reinterpret_cast<const void*>(command.storage(tensor).pointer));
  };
  if (device_of(from) != device_of(to)) {
    summary.to = MemoryKind::kOtherDevice;
  } else if (command.shape(from).dtype != command.shape(to).dtype) {
    summary.kind = CommandSummary::Kind::kKernel;  // a conversion
  }
  return summary;
}

// The program's threads copy, as a bus does: between any two of pinned memory and devices.
const OpKernel copy_kernel{
    "aten::copy_", &run_copy, {.summarize = &summarize_copy}, {.in_program = true}};
const OpKernel transfer_kernel{"aten::_copy_from",
                               &run_copy,
                               {.engine = EngineKind::kCopy, .summarize = &summarize_copy},
                               {.in_program = true}};

/// The kernel for a copy from one memory to another. The copy engine runs long ones; handing a
/// stream over to it and back costs some 40 us, a tenth of the time to copy this many bytes.
const OpKernel& kernel_between_memories(const at::Tensor& destination) {
  constexpr std::size_t kLong = std::size_t{4} << 20;
  return destination.nbytes() >= kLong ? transfer_kernel : copy_kernel;
}

/// ATen's checks of the arguments of a copy, with its messages.
void check_copy(const at::Tensor& source, const at::Tensor& destination) {
  if (source.sizes() != destination.sizes() &&
      !at::is_expandable_to(source.sizes(), destination.sizes())) {
    at::TensorIteratorConfig()
        .add_output(destination)
        .add_const_input(source)
        .resize_outputs(false)
        .check_all_same_dtype(false)
        .check_all_same_device(false)
        .build();
  }
  if (!source._is_zerotensor()) expect_memory(source);
  expect_memory(destination);
  at::assert_no_internal_overlap(destination);
  if (source.device() == destination.device()) at::assert_no_partial_overlap(destination, source);
}

/// The bytes from the first element on that all belong to the tensor.
std::size_t whole_bytes(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() ? tensor.nbytes() : tensor.itemsize();
}

void copy_within_device(const at::Tensor& source, const at::Tensor& destination) {
  ArgumentWriter writer(copy_kernel.name(), destination.device());
  writer.tensor(destination, Access::kWrite);
  writer.tensor(source);
  launch(copy_kernel, writer);
}

void copy_between_devices(const at::Tensor& source, const at::Tensor& destination) {
  auto& from = backend::current_stream(source.device().index());
  auto& to = backend::current_stream(destination.device().index());
  const OpKernel& kernel = kernel_between_memories(destination);
  ArgumentWriter writer(kernel.name(), source.device());
  writer.tensor_of_any_device(destination, Access::kWrite);  // may enqueue work of the destination
  writer.tensor(source);
  // Work queued on the destination may still use its memory.
  backend::translate_errors([&] { wait_stream(from, to); });
  launch(kernel, writer);
  backend::translate_errors([&] { wait_stream(to, from); });
}

/// Between pinned memory and a device: a command. The pinned allocator keeps the memory for it.
void copy_pinned(const at::Tensor& source, const at::Tensor& destination) {
  const auto device = (source.is_cpu() ? destination : source).device();
  const OpKernel& kernel = kernel_between_memories(destination);
  ArgumentWriter writer(kernel.name(), device);
  const auto write = [&writer](const at::Tensor& tensor, Access access) {
    tensor.is_cpu() ? writer.pinned_tensor(tensor, access) : writer.tensor(tensor, access);
  };
  write(destination, Access::kWrite);
  write(source, Access::kRead);
  launch(kernel, writer);
  const auto& data = (source.is_cpu() ? source : destination).storage().data_ptr();
  at::getHostAllocator(backend::kDeviceType)
      ->record_event(data.get(), data.get_context(),
                     backend::to_torch(backend::current_stream(device.index())));
}

/// Whether there is something to copy between the host and a device: without computing, what is
/// known. What the destination has afterwards is noted.
bool has_values(const at::Tensor& source, const at::Tensor& destination) {
  auto* const tracker = memory::ValueTracker::get();
  if (!tracker) return true;
  if (destination.is_cpu())
    return tracker->values_of(source.storage().data()) != memory::Values::kNone;
  const bool small = memory::ValueTracker::is_small(destination.nbytes(),
                                                    backend::dtype_name(destination.scalar_type()));
  tracker->written(destination.storage().data(),
                   destination.nbytes() >= destination.storage().nbytes(),
                   small ? memory::Values::kKnown : memory::Values::kNone);
  return small;
}

/// The calling thread copies, once the device's stream is idle.
void copy_pageable(const at::Tensor& source, const at::Tensor& destination) {
  const bool to_device = source.is_cpu();
  const auto device = (to_device ? destination : source).device();
  wait_for_device(device, to_device ? kFromPageable : "aten::copy_ to the CPU");
  auto& stream = backend::current_stream(device.index());
  const tracing::HostCommand traced(
      {stream.device(), stream.id()}, copy_kernel.name(),
      {.kind = CommandSummary::Kind::kCopy,
       .from = to_device ? MemoryKind::kPageable : MemoryKind::kDevice,
       .to = to_device ? MemoryKind::kDevice : MemoryKind::kPageable,
       .bytes = static_cast<std::uint64_t>(destination.nbytes())});
  CpuAliases aliases(device, copy_kernel.name());
  aliases.at_argument(to_device ? kDestination : kSource);
  const BelowAutograd below_autograd;
  backend::HostCopy copy(stream, copy_kernel.name());
  auto to = to_device ? aliases.alias(destination, Access::kWrite) : destination;
  const auto from = to_device ? source : aliases.alias(source, Access::kRead);
  if (!has_values(source, destination)) {
    if (!to_device) to.zero_();
    return;
  }
  at::native::copy_(to, from, /*non_blocking=*/false);
  aliases.check_accesses();
  copy.end(to.data_ptr(), whole_bytes(to));
}

void copy_from_cpu(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  if (non_blocking && source.is_pinned()) return copy_pinned(source, destination);
  if (!non_blocking || source.nbytes() > ArgumentWriter::kMaxInlineBytes)
    return copy_pageable(source, destination);
  const auto device = destination.device();
  // It does not wait, but a larger copy would, and CUDA allows neither in a capture.
  expect_may_wait(device, kFromPageable);
  ArgumentWriter writer(copy_kernel.name(), device);
  writer.tensor(destination, Access::kWrite);
  writer.inline_tensor(writer.keep_alive(source.contiguous()));
  launch(copy_kernel, writer);
}

void copy_to_cpu(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  non_blocking&& destination.is_pinned() ? copy_pinned(source, destination)
                                         : copy_pageable(source, destination);
}

/// Whether both are views of exactly the same elements, so that there is nothing to copy.
bool are_same_elements(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().is_alias_of(b.storage()) && a.storage_offset() == b.storage_offset() &&
         a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& destination, bool non_blocking) {
  if (source.is_same(destination)) return destination;
  check_copy(source, destination);
  if (source.device() == destination.device() && !source._is_zerotensor() &&
      are_same_elements(source, destination))
    return destination;
  if (destination.numel() == 0) return destination;
  if (source._is_zerotensor()) {  // has no memory to copy
    at::_ops::zero_::call(const_cast<at::Tensor&>(destination));
  } else if (source.device() == destination.device()) {
    copy_within_device(source, destination);
  } else if (source.is_cpu()) {
    copy_from_cpu(source, destination, non_blocking);
  } else if (destination.is_cpu()) {
    copy_to_cpu(source, destination, non_blocking);
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(backend::is_openreg(source) && backend::is_openreg(destination),
                                "openreg: cannot copy from ", source.device(), " to ",
                                destination.device(), "; copy through the CPU");
    copy_between_devices(source, destination);
  }
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& destination) {
  destination.resize_(source.sizes());
  return copy_from(source, destination, /*non_blocking=*/false);
}

bool is_packed(at::ScalarType dtype) { return dtype == at::kQUInt4x2 || dtype == at::kQUInt2x4; }

/// For CPU tensors whose integers are shorter than a byte, of which ATen copies only single
/// elements.
void copy_packed(const at::Tensor& source, const at::Tensor& destination) {
  TORCH_CHECK(source.scalar_type() == destination.scalar_type() &&
                  source.sizes() == destination.sizes() &&
                  source.storage().nbytes() == destination.storage().nbytes() &&
                  source.is_contiguous() && destination.is_contiguous() &&
                  source.storage_offset() == 0 && destination.storage_offset() == 0,
              "openreg: a tensor of ", source.scalar_type(),
              " can only be copied as a whole (got a destination of ", destination.scalar_type(),
              " and shape ", destination.sizes(), ", expected the source's dtype, shape ",
              source.sizes(), " and strides)");
  at::get_qtensorimpl(destination)->set_quantizer_(at::get_qtensorimpl(source)->quantizer());
  std::memcpy(destination.mutable_data_ptr(), source.const_data_ptr(), source.storage().nbytes());
}

/// Applies ATen's rules for quantized tensors (one or both), on the calling thread.
at::Tensor copy_quantized(const at::Tensor& source, const at::Tensor& destination, bool) {
  const auto wait = [](c10::Device device) {
    if (backend::is_openreg(device)) wait_for_device(device, "aten::copy_ of quantized tensors");
  };
  wait(source.device());
  if (destination.device() != source.device()) wait(destination.device());
  CpuAliases sources(source.device(), copy_kernel.name());
  CpuAliases destinations(destination.device(), copy_kernel.name());
  sources.at_argument(kSource);
  destinations.at_argument(kDestination);
  const BelowAutograd below_autograd;
  auto to = destination.is_cpu() ? destination : destinations.alias(destination, Access::kWrite);
  const auto from = source.is_cpu() ? source : sources.alias(source, Access::kRead);
  if (is_packed(from.scalar_type())) {
    copy_packed(from, to);
  } else {
    at::native::copy_(to, from, /*non_blocking=*/false);
  }
  destinations.copy_back();
  return destination;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
}

OPENREG_LIBRARY_IMPL_FOR(Quantized, aten, m) { m.impl("_copy_from", TORCH_FN(copy_quantized)); }

// The copy handles conj and neg bits itself. Without this, the bit of a device tensor would be
// resolved by a copy, whose bit would again be resolved by a copy, and so on.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace openreg::ops
