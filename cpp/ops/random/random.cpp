// Random operators. ATen's own code checks the arguments and calls a stub, as on CUDA; our stub
// takes the generator's seed and offset at the call and launches a kernel that is a pure function
// of them (philox.h): the numbers do not depend on which thread runs it or on the number of
// threads.
#include <ATen/Dispatch_v2.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/cauchy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exponential_native.h>
#include <ATen/ops/geometric_native.h>
#include <ATen/ops/log_normal_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/random_native.h>
#include <ATen/ops/uniform_native.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <utility>

#include "backend/generator.h"
#include "ops/launch/function_kernel.h"
#include "ops/random/random_kernels.h"
#include "ops/random/transformation.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

namespace {

void fill_uniform(backend::PhiloxState philox, double from, double to, at::Tensor& self) {
  dispatch_floating<"uniform_kernel_cpu">(self, [&]<class Out>(Out) {
    using T = RealOf<Out>;
    const auto high = static_cast<Out>(to);
    const auto low = static_cast<T>(static_cast<Out>(from));
    const auto range = static_cast<T>(static_cast<Out>(static_cast<T>(high) - low));
    fill_with_reals<Out, T, Base::kUniform>(self, philox, [=](T u) {
      const T value = u * range + low;
      return static_cast<Out>(value) == high ? low : value;  // (0, 1] becomes [from, to)
    });
  });
}

template <bool kExponential>
void fill_normal(backend::PhiloxState philox, double mean, double std, at::Tensor& self) {
  constexpr auto kName =
      kExponential ? KernelName("log_normal_cpu") : KernelName("normal_kernel_cpu");
  dispatch_floating<kName>(self, [&]<class Out>(Out) {
    using T = RealOf<Out>;
    fill_with_reals<Out, T, Base::kNormal>(self, philox, [=](T x) {
      const T value = x * static_cast<T>(std) + static_cast<T>(mean);
      return kExponential ? std::exp(value) : value;
    });
  });
}

void fill_cauchy(backend::PhiloxState philox, double median, double sigma, at::Tensor& self) {
  dispatch_floating<"cauchy_cpu">(self, [&]<class Out>(Out) {
    using T = RealOf<Out>;
    fill_with_reals<Out, T, Base::kUniform>(self, philox, [=](T u) {
      if constexpr (std::is_same_v<T, float>) {  // the tangent overflows near 0 and 1
        constexpr T kEpsilon = std::numeric_limits<T>::epsilon();
        u = std::clamp(u, kEpsilon, 1 - kEpsilon);
      }
      return static_cast<T>(median) +
             static_cast<T>(sigma) * std::tan(std::numbers::pi_v<T> * (u - static_cast<T>(0.5)));
    });
  });
}

void fill_geometric(backend::PhiloxState philox, double p, at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "\"geometric_cpu\" not implemented for 'Bool'");
  dispatch_all<"geometric_cpu">(self, [&]<class Out>(Out) {
    using T = RealOf<Out>;
    const auto log_miss = std::log1p(-static_cast<T>(p));
    fill_with_reals<Out, T, Base::kUniform>(
        self, philox, [=](T u) { return std::max<T>(1, std::ceil(std::log(u) / log_miss)); });
  });
}

void fill_bernoulli(backend::PhiloxState philox, double p, at::Tensor& self) {
  dispatch_all<"bernoulli_scalar_cpu_">(self, [&]<class Out>(Out) {
    using T = RealOf<Out>;
    const T end = p >= 1 ? 2 : static_cast<T>(p);  // with p = 1 true even if u is 1
    fill_with_reals<Out, T, Base::kUniform>(self, philox, [=](T u) { return u < end; });
  });
}

/// Integers: `number` makes an element from 32 or 64 random bits.
template <class Bits, class Out, class Number>
void fill_with_integers(const at::Tensor& self, backend::PhiloxState philox, Number&& number) {
  const PhiloxGrid grid(self.numel(), kUnroll<Bits>);
  fill_in_order<Out>(self, [&](Out* out) {
    for_each_block(grid, philox, [&](const Raw& raw, std::int64_t n, auto&& place) {
      for (int k = 0; k < kUnroll<Bits>; ++k) {
        const std::int64_t end = std::min(place(k) + n, grid.elements);
        for (std::int64_t at = place(k), i = 0; at < end; ++at, ++i) {
          if constexpr (kUnroll<Bits> == 4) {
            out[at] = number(raw[k][i]);
          } else {
            out[at] = number(bits_of(raw, k, i));
          }
        }
      }
    });
  });
}

void fill_full_range(backend::PhiloxState philox, at::Tensor& self) {
  dispatch_all<"random_full_64_bits_range_kernel_cpu">(self, [&]<class Out>(Out) {
    fill_with_integers<std::uint64_t, Out>(self, philox, [](std::uint64_t bits) {
      return at::transformation::uniform_int_full_range<Out>(bits);
    });
  });
}

void fill_random(backend::PhiloxState philox, at::Tensor& self) {
  dispatch_all<"random_kernel_cpu">(self, [&]<class Out>(Out) {
    using Bits = std::conditional_t<sizeof(Out) == 8, std::uint64_t, std::uint32_t>;
    fill_with_integers<Bits, Out>(
        self, philox, [](Bits bits) { return at::transformation::uniform_int<Out>(bits); });
  });
}

const FunctionKernel<&fill_uniform> uniform_kernel{"aten::uniform_"};
const FunctionKernel<&fill_normal<false>> normal_kernel{"aten::normal_"};
const FunctionKernel<&fill_normal<true>> log_normal_kernel{"aten::log_normal_"};
const FunctionKernel<&fill_exponential> exponential_kernel{"aten::exponential_"};
const FunctionKernel<&fill_cauchy> cauchy_kernel{"aten::cauchy_"};
const FunctionKernel<&fill_geometric> geometric_kernel{"aten::geometric_"};
const FunctionKernel<&fill_bernoulli> bernoulli_kernel{"aten::bernoulli_.float"};
const FunctionKernel<&fill_random> random_kernel{"aten::random_"};
const FunctionKernel<&fill_integers> integers_kernel{"aten::random_.from"};
const FunctionKernel<&fill_full_range> full_range_kernel{"aten::random_.full_range"};

/// Launches a kernel that fills `self` with reals of the given parameters.
template <class Kernel, class... Parameters>
void launch_reals(const Kernel& kernel, const at::Tensor& self, const Generator& generator,
                  Parameters... parameters) {
  kernel.launch(self.device(), take_numbers(generator, self, unroll_of_reals(self)), parameters...,
                self);
}

void uniform(at::TensorIteratorBase& iter, double from, double to, Generator generator) {
  launch_reals(uniform_kernel, iter.tensor(0), generator, from, to);
}
void normal(const at::TensorBase& self, double mean, double std, Generator generator) {
  at::assert_no_internal_overlap(self);
  launch_reals(normal_kernel, at::Tensor(self), generator, mean, std);
}
void log_normal(at::TensorIteratorBase& iter, double mean, double std, Generator generator) {
  launch_reals(log_normal_kernel, iter.tensor(0), generator, mean, std);
}
void exponential(at::TensorIteratorBase& iter, double lambda, Generator generator) {
  TORCH_CHECK(at::isFloatingType(iter.dtype()),
              "Exponential distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              iter.dtype());
  launch_reals(exponential_kernel, iter.tensor(0), generator, lambda);
}
void cauchy(at::TensorIteratorBase& iter, double median, double sigma, Generator generator) {
  launch_reals(cauchy_kernel, iter.tensor(0), generator, median, sigma);
}
void geometric(at::TensorIteratorBase& iter, double p, Generator generator) {
  launch_reals(geometric_kernel, iter.tensor(0), generator, p);
}
void bernoulli_scalar(const at::TensorBase& self, double p, Generator generator) {
  launch_reals(bernoulli_kernel, at::Tensor(self), generator, p);
}
void random(at::TensorIteratorBase& iter, Generator generator) {
  const auto& self = iter.tensor(0);
  random_kernel.launch(self.device(), take_numbers(generator, self, self.itemsize() == 8 ? 2 : 4),
                       self);
}
void random_from_to(at::TensorIteratorBase& iter, std::uint64_t range, std::int64_t base,
                    Generator generator) {
  const auto& self = iter.tensor(0);
  integers_kernel.launch(self.device(), take_numbers(generator, self, unroll_of_integers(range)),
                         range, base, self);
}
void random_full_range(at::TensorIteratorBase& iter, Generator generator) {
  const auto& self = iter.tensor(0);
  full_range_kernel.launch(self.device(), take_numbers(generator, self, 2), self);
}

/// With a probability for each element: element i comes from subsequence i / 4, and each
/// subsequence draws once.
template <class P>
void fill_bernoulli_each(backend::PhiloxState philox, const at::Tensor& probabilities,
                         const at::Tensor& self) {
  const auto* p = probabilities.const_data_ptr<P>();
  const auto elements = self.numel();
  for (std::int64_t i = 0; i < elements; ++i) {
    const P p_in = p[i];  // named as in the CPU's kernel, whose message contains the name
    TORCH_CHECK(p_in >= 0 && p_in <= 1);
  }
  const auto fill = [&]<class Out>(Out) {
    auto* out = self.data_ptr<Out>();
    constexpr std::int64_t kElements = 4 * kLanes;
    at::parallel_for(
        0, (elements + kElements - 1) / kElements, 1, [&](std::int64_t first, std::int64_t last) {
          Raw raw;
          for (auto begin = first * kElements; begin < std::min(last * kElements, elements);
               begin += kElements) {
            const auto end = std::min(begin + kElements, elements);
            draw_subsequences(philox.seed, philox.offset, static_cast<std::uint64_t>(begin / 4),
                              (end - begin + 3) / 4, raw);
            for (auto i = begin; i < end; ++i)
              out[i] = static_cast<Out>(unit_of<float>(raw[i % 4][(i - begin) / 4]) <= p[i]);
          }
        });
  };
  dispatch_all<"bernoulli_tensor_cpu_self_">(self, fill);
}

void fill_bernoulli_tensor(backend::PhiloxState philox, const at::Tensor& each, at::Tensor& self) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, each.scalar_type(),
                                  "bernoulli_tensor_cpu_p_", [] {});
  // In the order of memory if that is the same for both, else in the order of indices.
  const bool in_place = self.is_non_overlapping_and_dense() && self.strides() == each.strides();
  const auto ordered = in_place ? each : each.contiguous();
  const auto drawn = in_place ? self : at::empty(self.sizes(), self.scalar_type());
  if (self.scalar_type() == at::kDouble) {
    fill_bernoulli_each<double>(philox, ordered.to(at::kDouble), drawn);
  } else {
    fill_bernoulli_each<float>(philox, ordered.to(at::kFloat), drawn);
  }
  if (!in_place) self.copy_(drawn);
}
const FunctionKernel<&fill_bernoulli_tensor> bernoulli_tensor_kernel{"aten::bernoulli_.Tensor"};

void bernoulli_tensor(const at::TensorBase& self, const at::TensorBase& p, Generator generator) {
  constexpr std::uint64_t kNumbers = 10;
  const auto probabilities = on_device(at::Tensor(p), self.device()).expand(self.sizes());
  at::assert_no_internal_overlap(self);
  at::assert_no_partial_overlap(self, probabilities);
  bernoulli_tensor_kernel.launch(self.device(), take_numbers(generator, self.device(), kNumbers),
                                 probabilities, at::Tensor(self));
}

at::Tensor& bernoulli_out(const at::Tensor& self, Generator generator, at::Tensor& out) {
  SameDevice devices("aten::bernoulli");
  devices.check(self);
  devices.check(out);
  return at::native::bernoulli_out(self, std::move(generator), out);
}

}  // namespace

void fill_exponential(backend::PhiloxState philox, double lambda, at::Tensor& self) {
  dispatch_floating<"exponential_cpu">(self, [&]<class Out>(Out) {
    using T = RealOf<Out>;
    constexpr T kHalfStep = std::numeric_limits<T>::epsilon() / 2;
    const auto scale = -1 / static_cast<T>(lambda);
    fill_with_reals<Out, T, Base::kUniform>(self, philox, [=](T u) {
      return scale * (u >= 1 - kHalfStep ? -kHalfStep : std::log(u));  // never 0
    });
  });
}

void fill_integers(backend::PhiloxState philox, std::uint64_t range, std::int64_t base,
                   at::Tensor& self) {
  const auto fill = [&]<class Out>(Out) {
    const auto number = [&](auto bits) {
      return at::transformation::uniform_int_from_to<Out>(bits, range, base);
    };
    if (takes_64_bits(range)) {
      fill_with_integers<std::uint64_t, Out>(self, philox, number);
    } else {
      fill_with_integers<std::uint32_t, Out>(self, philox, number);
    }
  };
  AT_DISPATCH_V2(self.scalar_type(), "random_from_to_kernel_cpu",
                 AT_WRAP([&] { fill(scalar_t{}); }), AT_EXPAND(AT_ALL_TYPES),
                 AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16);
}

OPENREG_LIBRARY_IMPL(aten, m) {
  using Self = at::Tensor&;
  m.impl("uniform_", TORCH_FN(at::native::uniform_));
  m.impl("normal_", TORCH_FN(at::native::normal_));
  m.impl("log_normal_", TORCH_FN(at::native::log_normal_));
  m.impl("exponential_", TORCH_FN(at::native::exponential_));
  m.impl("cauchy_", TORCH_FN(at::native::cauchy_));
  m.impl("geometric_", TORCH_FN(at::native::geometric_));
  m.impl("random_", TORCH_FN(static_cast<Self (*)(Self, Generator)>(at::native::random_)));
  m.impl("random_.to",
         TORCH_FN(static_cast<Self (*)(Self, std::int64_t, Generator)>(at::native::random_)));
  m.impl("random_.from",
         TORCH_FN(static_cast<Self (*)(Self, std::int64_t, std::optional<std::int64_t>, Generator)>(
             at::native::random_)));
  m.impl("bernoulli_.float",
         TORCH_FN(static_cast<Self (*)(Self, double, Generator)>(at::native::bernoulli_)));
  m.impl(
      "bernoulli_.Tensor",
      TORCH_FN(static_cast<Self (*)(Self, const at::Tensor&, Generator)>(at::native::bernoulli_)));
  m.impl("bernoulli.out", TORCH_FN(bernoulli_out));
}

}  // namespace openreg::ops

namespace at::native {

OPENREG_REGISTER_DISPATCH(uniform_stub, &openreg::ops::uniform)
OPENREG_REGISTER_DISPATCH(normal_stub, &openreg::ops::normal)
OPENREG_REGISTER_DISPATCH(log_normal_stub, &openreg::ops::log_normal)
OPENREG_REGISTER_DISPATCH(exponential_stub, &openreg::ops::exponential)
OPENREG_REGISTER_DISPATCH(cauchy_stub, &openreg::ops::cauchy)
OPENREG_REGISTER_DISPATCH(geometric_stub, &openreg::ops::geometric)
OPENREG_REGISTER_DISPATCH(random_stub, &openreg::ops::random)
OPENREG_REGISTER_DISPATCH(random_from_to_stub, &openreg::ops::random_from_to)
OPENREG_REGISTER_DISPATCH(random_full_64_bits_range_stub, &openreg::ops::random_full_range)
OPENREG_REGISTER_DISPATCH(bernoulli_scalar_stub, &openreg::ops::bernoulli_scalar)
OPENREG_REGISTER_DISPATCH(bernoulli_tensor_stub, &openreg::ops::bernoulli_tensor)

}  // namespace at::native
