// Distributions with rejection samplers: it is not known in advance how many numbers an element
// takes, so each element has its own subsequence, as on CUDA.
#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Distributions.h>

#include <cmath>
#include <limits>
#include <optional>

#include "ops/launch/function_kernel.h"
#include "ops/random/box_muller.h"
#include "ops/random/random_kernels.h"
#include "ops/tensors/factories.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

namespace {

using backend::PhiloxState;

/// Calls `sample(stream, i)` for each element, in parallel.
template <class Sample>
void for_each_element(std::int64_t count, PhiloxState philox, Sample&& sample) {
  constexpr std::int64_t kGrain = 256;
  at::parallel_for(0, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      PhiloxStream stream(philox, static_cast<std::uint64_t>(i));
      sample(stream, i);
    }
  });
}

/// 24 bits of a number, in [0, 1).
float fraction(PhiloxStream& stream) {
  constexpr auto kBits = std::uint32_t{1} << std::numeric_limits<float>::digits;
  return static_cast<float>(stream.next() % kBits) / kBits;
}

/// Standard normal numbers, made in pairs.
class NormalStream {
 public:
  explicit NormalStream(PhiloxStream& stream) : stream_(stream) {}

  float operator()() {
    if (has_second_) {
      has_second_ = false;
      return second_;
    }
    const std::uint32_t x = stream_.next();
    const std::uint32_t y = stream_.next();
    float first;
    box_muller(&x, &y, &first, &second_, 1);
    has_second_ = true;
    return first;
  }

 private:
  PhiloxStream& stream_;
  float second_ = 0;
  bool has_second_ = false;
};

double log_factorial(double k) {
  int sign;  // std::lgamma writes it to a global variable
  return ::lgamma_r(k + 1, &sign);
}

// Small rates: counts the factors in (0, 1] until their product falls below exp(-rate) (Knuth).
// Large ones: W. Hoermann, "The transformed rejection method for generating Poisson random
// variables", 1993.
double sample_poisson(PhiloxStream& stream, double rate) {
  if (rate == 0) return 0;
  const auto uniform = [&] { return unit_of<double>(stream.next()); };
  constexpr double kSmall = 10;
  if (rate < kSmall) {
    const double end = std::exp(-rate);
    double k = 0;
    for (double product = uniform(); product > end; product *= uniform()) ++k;
    return k;
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const double squeeze = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = uniform() - 0.5;
    const double v = uniform();
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= squeeze) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        k * std::log(rate) - rate - log_factorial(k))
      return k;
  }
}

void poisson(PhiloxState philox, const at::Tensor& rates, at::Tensor& out) {
  const auto dense = rates.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, rates.scalar_type(), "poisson_cpu", [&] {
        const auto* rate = dense.const_data_ptr<scalar_t>();
        auto* to = out.mutable_data_ptr<scalar_t>();
        for_each_element(out.numel(), philox, [&](PhiloxStream& stream, std::int64_t i) {
          TORCH_CHECK(rate[i] >= 0, "invalid Poisson rate, expected rate to be non-negative");
          to[i] = static_cast<scalar_t>(sample_poisson(stream, static_cast<double>(rate[i])));
        });
      });
}

void binomial(PhiloxState philox, const at::Tensor& counts, const at::Tensor& probabilities,
              at::Tensor& out) {
  const auto dense_counts = counts.contiguous();
  const auto dense_probabilities = probabilities.contiguous();
  AT_DISPATCH_FLOATING_TYPES(counts.scalar_type(), "binomial_cpu", [&] {
    const auto* count = dense_counts.const_data_ptr<scalar_t>();
    const auto* p = dense_probabilities.const_data_ptr<scalar_t>();
    auto* to = out.mutable_data_ptr<scalar_t>();
    for_each_element(out.numel(), philox, [&](PhiloxStream& stream, std::int64_t i) {
      const auto uniform = [&] { return static_cast<double>(fraction(stream)); };
      BaseSampler<double, decltype(uniform)> sampler(uniform);
      to[i] = static_cast<scalar_t>(
          sample_binomial<double, double, decltype(uniform)>(count[i], p[i], sampler));
    });
  });
}

template <class T>
void fill_gamma(PhiloxState philox, const at::Tensor& alphas, at::Tensor& out) {
  const auto dense = alphas.contiguous();
  const auto* alpha = static_cast<const T*>(dense.const_data_ptr());
  auto* to = static_cast<T*>(out.mutable_data_ptr());
  for_each_element(out.numel(), philox, [&](PhiloxStream& stream, std::int64_t i) {
    const auto uniform = [&] { return unit_of<double>(stream.next()); };
    BaseSampler<double, decltype(uniform)> uniforms(uniform);
    BaseSampler<double, NormalStream> normals{NormalStream(stream)};
    const auto sample =
        sample_gamma<T, double, decltype(uniform), NormalStream>(alpha[i], uniforms, normals);
    to[i] = std::max(std::numeric_limits<T>::min(), sample);
  });
}

void gamma(PhiloxState philox, const at::Tensor& alphas, at::Tensor& out) {
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "gamma_cpu",
                             [&] { fill_gamma<scalar_t>(philox, alphas, out); });
}

void dirichlet(PhiloxState philox, const at::Tensor& alphas, at::Tensor& out) {
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "dirichlet", [&] {
    fill_gamma<scalar_t>(philox, alphas, out);
    constexpr auto kSmallest = std::numeric_limits<scalar_t>::min();
    constexpr auto kLargest = 1 - std::numeric_limits<scalar_t>::epsilon() / 2;
    out.div_(out.sum(-1, /*keepdim=*/true)).clamp_(kSmallest, kLargest);
  });
}

const FunctionKernel<&poisson> poisson_kernel{"aten::poisson"};
const FunctionKernel<&binomial> binomial_kernel{"aten::binomial"};
const FunctionKernel<&gamma> gamma_kernel{"aten::_standard_gamma"};
const FunctionKernel<&dirichlet> dirichlet_kernel{"aten::_sample_dirichlet"};

/// \param numbers how far CUDA's kernel advances the generator.
template <class Kernel, class... Parameters>
at::Tensor sample(const Kernel& kernel, std::uint64_t numbers, const Generator& generator,
                  const at::Tensor& like, const Parameters&... parameters) {
  expect_our_device(like.device());
  auto out = empty_on(like.device(), like.sizes(), like.scalar_type());
  if (out.numel() == 0) return out;
  kernel.launch(like.device(), take_numbers(generator, like.device(), numbers), like, parameters...,
                out);
  return out;
}

at::Tensor poisson_of(const at::Tensor& rates, Generator generator) {
  return sample(poisson_kernel, 20, generator, rates);
}

/// \param count, probability of one floating dtype, broadcast.
at::Tensor binomial_of(const at::Tensor& count, const at::Tensor& probability,
                       Generator generator) {
  SameDevice same("binomial");
  same.check(count);
  same.check(probability);
  TORCH_CHECK_VALUE(
      at::isFloatingType(count.scalar_type()),
      "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
  TORCH_CHECK_VALUE(
      at::isFloatingType(probability.scalar_type()),
      "binomial only supports floating-point dtypes for prob, got: ", probability.scalar_type());
  TORCH_CHECK(count.scalar_type() == probability.scalar_type(), "Found dtype ",
              probability.scalar_type(), " but expected ", count.scalar_type());
  const auto sizes = at::infer_size(count.sizes(), probability.sizes());
  return sample(binomial_kernel, 42, generator, count.expand(sizes), probability.expand(sizes));
}

at::Tensor standard_gamma(const at::Tensor& alphas, Generator generator) {
  return sample(gamma_kernel, 10, generator, alphas);
}

at::Tensor sample_dirichlet(const at::Tensor& alphas, Generator generator) {
  return sample(dirichlet_kernel, 10, generator, alphas);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("poisson", TORCH_FN(poisson_of));
  m.impl("binomial", TORCH_FN(binomial_of));
  m.impl("_standard_gamma", TORCH_FN(standard_gamma));
  m.impl("_sample_dirichlet", TORCH_FN(sample_dirichlet));
}

}  // namespace openreg::ops
