#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/index_select_native.h>

#include "ops/launch/launch.h"
#include "ops/tensors/factories.h"
#include "ops/wire/same_device.h"
#include "ops/wire/typed_arguments.h"
#include "slot.h"

namespace openreg::ops {

namespace {

void run_index_select(const OpKernel&, ArgumentReader& reader) {
  KernelCall<at::Tensor&(const at::Tensor&, std::int64_t, const at::Tensor&, at::Tensor&)>::run(
      reader, &at::native::index_select_out_cpu_);
}
const OpKernel index_select_kernel{"aten::index_select", &run_index_select};

/// Checks what does not depend on elements, with the CPU's messages, and returns the result's
/// sizes. The kernel detects an index out of range, so that is an error of the stream.
c10::SmallVector<std::int64_t, 6> check_index_select(const at::Tensor& self, std::int64_t dim,
                                                     const at::Tensor& index) {
  SameDevice devices("aten::index_select");
  devices.check(self);
  devices.check(index);
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(self.dim() != 0 || index.numel() == 1,
              "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
              " value(s)");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index");
  TORCH_CHECK(self.dim() <= 1 || index.numel() == 0 || self.size(dim) > 0,
              "index_select(): self indexing axis dim should be positive");
  // An error whatever the indices are, so it need not be an error of the stream.
  TORCH_CHECK_INDEX(self.dim() != 1 || index.numel() == 0 || self.size(0) > 0,
                    "index out of range in self");
  c10::SmallVector<std::int64_t, 6> sizes(self.sizes().begin(), self.sizes().end());
  if (!sizes.empty()) sizes[dim] = index.numel();
  return sizes;
}

void launch_index_select(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                         const at::Tensor& out) {
  ArgumentWriter writer(index_select_kernel.name(), self.device());
  writer.tensor(self);
  writer.value(dim);
  writer.tensor(index);
  writer.tensor(out, Access::kWrite);
  launch(index_select_kernel, writer);
}

at::Tensor index_select(const at::Tensor& self, std::int64_t dim, const at::Tensor& index) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  auto out = empty_on(self.device(), check_index_select(self, dim, index), self.scalar_type());
  launch_index_select(self, dim, index, out);
  return out;
}

at::Tensor& index_select_out(const at::Tensor& self, std::int64_t dim, const at::Tensor& index,
                             at::Tensor& out) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const auto sizes = check_index_select(self, dim, index);
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  at::native::resize_output(out, sizes);
  launch_index_select(self, dim, index, out);
  return out;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("index_select.out", TORCH_FN(index_select_out));
}

}  // namespace openreg::ops
