// normal() with separate means or deviations for each element, made of other operators.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>

#include <optional>

#include "ops/launch/function_kernel.h"
#include "ops/random/random_kernels.h"
#include "ops/tensors/factories.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

namespace {

void check_deviations(const at::Tensor& std) {
  TORCH_CHECK(std.min().ge(0).item<bool>(), "normal expects all elements of std >= 0.0");
}
const FunctionKernel<&check_deviations> check_kernel{"aten::normal.float_Tensor"};

void check(double std) { TORCH_CHECK(std >= 0, "normal expects std >= 0.0, but found std ", std); }
/// The elements are checked on the device: a wrong one is an error of the stream.
void check(const at::Tensor& std) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  if (std.numel() > 0) check_kernel.launch(std.device(), std);
}

/// Expects all on one device, which must be an openreg device.
template <class... Tensors>
void check_devices(const at::Tensor& first, const Tensors&... others) {
  SameDevice same("normal");
  same.check(first);
  (same.check(others), ...);
  expect_our_device(first.device());
}

at::Tensor& normal_out_tensor_float(const at::Tensor& mean, double std, Generator generator,
                                    at::Tensor& out) {
  check_devices(mean, out);
  check(std);
  at::native::resize_output(out, at::infer_size(mean.sizes(), out.sizes()));
  return out.normal_(0, std, std::move(generator)).add_(mean);
}

at::Tensor& normal_out_float_tensor(double mean, const at::Tensor& std, Generator generator,
                                    at::Tensor& out) {
  check_devices(std, out);
  check(std);
  at::native::resize_output(out, std.sizes());
  return out.normal_(0, 1, std::move(generator)).mul_(std).add_(mean);
}

at::Tensor& normal_out_tensor_tensor(const at::Tensor& mean, const at::Tensor& std,
                                     Generator generator, at::Tensor& out) {
  check_devices(mean, std, out);
  check(std);
  at::native::resize_output(out, at::infer_size(mean.sizes(), std.sizes()));
  return out.normal_(0, 1, std::move(generator)).mul_(std).add_(mean);
}

at::Tensor normal_tensor_float(const at::Tensor& mean, double std, Generator generator) {
  auto out = at::empty_like(mean, at::MemoryFormat::Contiguous);
  return normal_out_tensor_float(mean, std, std::move(generator), out);
}

at::Tensor normal_float_tensor(double mean, const at::Tensor& std, Generator generator) {
  auto out = at::empty_like(std, at::MemoryFormat::Contiguous);
  return normal_out_float_tensor(mean, std, std::move(generator), out);
}

at::Tensor normal_tensor_tensor(const at::Tensor& mean, const at::Tensor& std,
                                Generator generator) {
  check_devices(mean, std);
  auto out = empty_on(mean.device(), at::infer_size(mean.sizes(), std.sizes()), mean.scalar_type());
  return normal_out_tensor_tensor(mean, std, std::move(generator), out);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("normal.Tensor_float", TORCH_FN(normal_tensor_float));
  m.impl("normal.Tensor_float_out", TORCH_FN(normal_out_tensor_float));
  m.impl("normal.float_Tensor", TORCH_FN(normal_float_tensor));
  m.impl("normal.float_Tensor_out", TORCH_FN(normal_out_float_tensor));
  m.impl("normal.Tensor_Tensor", TORCH_FN(normal_tensor_tensor));
  m.impl("normal.Tensor_Tensor_out", TORCH_FN(normal_out_tensor_tensor));
}

}  // namespace openreg::ops
