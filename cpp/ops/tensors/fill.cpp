#include <ATen/ops/fill_native.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/item.h>
#include <ATen/ops/zero_native.h>

#include <cstdint>

#include "ops/launch/launch.h"
#include "ops/wire/command_layout.h"
#include "ops/wire/extent.h"
#include "ops/wire/typed_arguments.h"
#include "runtime/trace.h"
#include "slot.h"

namespace openreg::ops {

namespace {

void run_fill(const OpKernel&, ArgumentReader& reader) {
  auto& self = reader.tensor();
  at::native::fill_(self, ArgumentOf<at::Scalar>::read(reader));
}
const OpKernel fill_kernel{"aten::fill_.Scalar", &run_fill};

void run_fill_tensor(const OpKernel&, ArgumentReader& reader) {
  auto& self = reader.tensor();
  at::native::fill_(self, reader.tensor());
}
const OpKernel fill_tensor_kernel{"aten::fill_.Tensor", &run_fill_tensor};

void run_zero(const OpKernel&, ArgumentReader& reader) { at::native::zero_(reader.tensor()); }

CommandSummary summarize_zero(std::span<const std::byte> bytes) noexcept {
  const CommandView command(bytes);
  const auto& self = command.tensors()[0];
  return {.kind = CommandSummary::Kind::kFill,
          .bytes = bytes_of(command.numel(self), command.shape(self).type())};
}

const OpKernel zero_kernel{"aten::zero_", &run_zero, {.summarize = &summarize_zero}};

// As on the CPU, memory that several elements share may be filled: they all get the same value.
ArgumentWriter writer_for(const OpKernel& kernel, const at::Tensor& self) {
  ArgumentWriter writer(kernel.name(), self.device());
  writer.tensor(self, Access::kWrite);
  return writer;
}

/// Throws ATen's error if the dtype cannot hold the number. That depends on the value, so a probe
/// with another number does not show it. Dtypes that are not listed here are left to the kernel.
void check_value(at::ScalarType dtype, const at::Scalar& value) {
  switch (dtype) {
#define CASE(T, NAME)                 \
  case at::ScalarType::NAME:          \
    static_cast<void>(value.to<T>()); \
    return;
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX(CASE)
    CASE(std::uint16_t, UInt16)
    CASE(std::uint32_t, UInt32)
    CASE(std::uint64_t, UInt64)
#undef CASE
    default:
      return;
  }
}

at::Tensor& fill_scalar(at::Tensor& self, const at::Scalar& value) {
  check_value(self.scalar_type(), value);
  auto writer = writer_for(fill_kernel, self);
  ArgumentOf<at::Scalar>::write(writer, value);
  launch(fill_kernel, writer);
  return self;
}

at::Tensor& fill_tensor(at::Tensor& self, const at::Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  if (self.device() != value.device() && !value.is_cpu()) {  // either may be the CPU, as with CUDA
    return at::_ops::fill__Scalar::call(self, value.item());
  }
  auto writer = writer_for(fill_tensor_kernel, self);
  writer.tensor(value);
  launch(fill_tensor_kernel, writer);
  return self;
}

at::Tensor& zero(at::Tensor& self) {
  auto writer = writer_for(zero_kernel, self);
  launch(zero_kernel, writer);
  return self;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  m.impl("zero_", TORCH_FN(zero));
}

}  // namespace openreg::ops
