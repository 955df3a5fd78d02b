#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>

#include <limits>
#include <optional>

#include "ops/launch/function_kernel.h"
#include "ops/random/random_kernels.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// Scales negative elements by numbers in (lower, upper], which `noise` receives, and the others by
/// 1.
void rrelu(backend::PhiloxState philox, const at::Tensor& self, double lower, double upper,
           at::Tensor& noise, at::Tensor& output) {
  const auto input = self.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, self.scalar_type(), "rrelu_with_noise_out_cpu", [&] {
        using T = RealOf<scalar_t>;
        const auto slopes =
            at::empty(self.sizes(), self.options().memory_format(at::MemoryFormat::Contiguous));
        fill_with_reals<scalar_t, T, Base::kUniform>(slopes, philox, [=](T u) {
          return u * static_cast<T>(upper - lower) + static_cast<T>(lower);
        });
        slopes.masked_fill_(input.le(0).logical_not(), 1);
        const auto scaled =
            slopes.mul(input);  // before anything is written: self may be any of them
        noise.copy_(slopes);
        output.copy_(scaled);
      });
}
const FunctionKernel<&rrelu> rrelu_kernel{"aten::rrelu_with_noise"};

/// Checks, with ATen's message, that the range is valid for a uniform distribution.
void check_slopes(at::ScalarType dtype, double from, double to) {
  TORCH_CHECK(from <= to);
  if (dtype == at::kDouble) {
    using T = double;
    TORCH_CHECK(to - from <= std::numeric_limits<T>::max());
  } else {
    using T = float;
    TORCH_CHECK(to - from <= std::numeric_limits<T>::max());
  }
}

/// \param noise of self's shape; written in training. \param lower, upper slopes for negative
/// elements; their mean is used outside training.
at::Tensor& rrelu_with_noise_out(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                                 const at::Scalar& upper, bool training, Generator generator,
                                 at::Tensor& out) {
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  const auto from = lower.to<double>();
  const auto to = upper.to<double>();
  if (!training) return at::leaky_relu_out(out, self, (from + to) / 2);
  TORCH_CHECK(noise.scalar_type() == self.scalar_type(), "expected scalar type ",
              self.scalar_type(), " but found ", noise.scalar_type());
  check_slopes(self.scalar_type(), from, to);
  at::native::resize_output(out, self.sizes());
  at::assert_no_internal_overlap(out);
  at::assert_no_internal_overlap(noise);
  rrelu_kernel.launch(self.device(), take_numbers(generator, self, unroll_of_reals(self)), self,
                      from, to, noise, out);
  return out;
}

at::Tensor rrelu_with_noise(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                            const at::Scalar& upper, bool training, Generator generator) {
  auto out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), out);
}

at::Tensor& rrelu_with_noise_(at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                              const at::Scalar& upper, bool training, Generator generator) {
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), self);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("rrelu_with_noise", TORCH_FN(rrelu_with_noise));
  m.impl("rrelu_with_noise.out", TORCH_FN(rrelu_with_noise_out));
  m.impl("rrelu_with_noise_", TORCH_FN(rrelu_with_noise_));
}

}  // namespace openreg::ops
