#include "ops/tiers/temporary_outputs.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include <algorithm>

namespace openreg::ops {

namespace {

/// Whether the kernel may write all of its memory: some compute in more than the elements need.
bool is_alone(const at::Tensor& output) {
  return output.numel() == 0 ||
         (has_default_strides(output) && output.nbytes() >= output.storage().nbytes());
}

}  // namespace

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

at::Tensor temporary_output(const at::Tensor& output) {
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

TemporaryOutputs::TemporaryOutputs(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
  const auto& arguments = schema.arguments();
  const auto begin = stack.size() - arguments.size();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& argument = stack[begin + i];
    if (!arguments[i].is_out() || !argument.isTensor()) continue;
    const at::Tensor output = argument.toTensor();
    if (output.layout() != at::kStrided || is_alone(output)) continue;
    bool overlaps = false;
    c10::SmallVector<std::size_t, 1> same;  // inputs that are the output: it works in place
    for (std::size_t j = 0; j < arguments.size(); ++j) {
      if (arguments[j].is_out()) continue;
      if (stack[begin + j].isTensor() && stack[begin + j].toTensor().is_same(output))
        same.push_back(j);
      for_tensors_in_memory_of(output, stack[begin + j], [&](const at::Tensor& input) {
        overlaps |= at::get_overlap_status(output, input) != at::MemOverlapStatus::No;
      });
    }
    if (overlaps && has_default_strides(output)) continue;  // the kernel decides
    pairs_.emplace_back(temporary_output(output), output);
    const auto& result = pairs_.back().first;
    argument = result;
    if (same.empty()) continue;
    result.copy_(output);
    for (const auto j : same) stack[begin + j] = result;
  }
}

void TemporaryOutputs::put_back(torch::jit::Stack& stack, std::size_t last) const {
  for (const auto& [result, output] : pairs_) {
    for (auto i = stack.size() - last; i < stack.size(); ++i)
      if (stack[i].isTensor() && stack[i].toTensor().is_same(result)) stack[i] = output;
  }
}

void TemporaryOutputs::copy_back(torch::jit::Stack& stack, std::size_t results) const {
  for (const auto& [result, output] : pairs_) copy_to_output(result, output);
  put_back(stack, results);
}

}  // namespace openreg::ops
