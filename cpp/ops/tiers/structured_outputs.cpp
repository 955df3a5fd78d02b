#include "ops/tiers/structured_outputs.h"

#include <ATen/native/Resize.h>
#include <c10/util/Exception.h>

#include <string>

#include "ops/tensors/factories.h"

namespace openreg::ops {

namespace {

at::Tensor make_output(at::IntArrayRef sizes, at::IntArrayRef strides,
                       const at::TensorOptions& options) {
  if (!strides.empty())
    return empty_strided_on(options.device(), sizes, strides, options.dtype().toScalarType());
  return empty_on(options.device(), sizes, options.dtype().toScalarType(),
                  options.memory_format_opt());
}

void resize_output(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                   const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(),
              ", but got ", out.dtype(), " instead");
  TORCH_CHECK(options.device() == out.device(), "Expected out tensor to have device ",
              options.device(), ", but got ", out.device(), " instead");
  if (!at::native::resize_output(out, sizes)) return;
  if (!strides.empty()) {
    TORCH_INTERNAL_ASSERT(!options.memory_format_opt().has_value());
    out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  } else if (options.memory_format_opt().has_value()) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
  }
}

void check_inplace(const at::Tensor& self, at::IntArrayRef sizes,
                   const at::TensorOptions& options) {
  TORCH_CHECK(options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ",
              self.dtype(), " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(options.device() == self.device(), "Bad in-place call: input tensor device ",
              self.device(), " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(),
              " and output tensor size ", sizes, " should match");
}

}  // namespace

const char* operator_name(const char* name, const char* overload) {
  // Leaked deliberately: kernels point to it, and live as long as the process.
  return (new std::string(*overload ? std::string(name) + "." + overload : name))->c_str();
}

void OutputRequests::set(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
                         const at::TensorOptions& options, bool exactly) {
  auto& output = outputs_[static_cast<std::size_t>(i)];
  switch (form_) {
    case Form::kFunctional:
      output = make_output(sizes, strides, options);
      break;
    case Form::kOut:
      resize_output(output, sizes, strides, options);
      break;
    case Form::kInplace:
      check_inplace(output, sizes, options);
      break;
    case Form::kCached:
      if (sizes != output.sizes()) are_met_ = false;
      // Otherwise the iterator computes elsewhere, and copies.
      if (exactly && !strides.empty() && strides != output.strides()) are_met_ = false;
      break;
  }
}

}  // namespace openreg::ops
