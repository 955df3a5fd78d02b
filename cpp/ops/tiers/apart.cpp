#include "ops/tiers/apart.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace openreg::ops {

bool has_default_strides(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return true;
  std::int64_t stride = 1;
  for (auto dim = tensor.dim(); dim-- > 0; stride *= tensor.size(dim))
    if (tensor.stride(dim) != stride) return false;
  return true;
}

bool have_default_strides(std::span<const at::Tensor> tensors) {
  return std::ranges::all_of(tensors, has_default_strides);
}

void for_tensors_in_memory_of(const at::Tensor& output, const c10::IValue& argument,
                              c10::function_ref<void(const at::Tensor&)> use) {
  const auto use_if_alias = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage() && tensor.storage().is_alias_of(output.storage()))
      use(tensor);
  };
  if (argument.isTensor()) {
    use_if_alias(argument.toTensor());
  } else if (argument.isTensorList()) {
    for (const at::Tensor& tensor : argument.toTensorVector()) use_if_alias(tensor);
  } else if (argument.isOptionalTensorList()) {
    for (const auto& tensor : argument.toOptionalTensorVector())
      if (tensor) use_if_alias(*tensor);
  }
}

at::Tensor output_apart(const at::Tensor& output) {
  return at::empty(output.sizes(), output.options());
}

void copy_to_output(const at::Tensor& result, const at::Tensor& output) {
  if (result.sizes() != output.sizes()) {  // the kernel has warned
    output.resize_(result.sizes());
    output.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
  }
  at::assert_no_internal_overlap(output);
  output.copy_(result);
}

}  // namespace openreg::ops
