// Random operators. ATen's own code checks the arguments and calls a stub, as on CUDA; ours takes
// the generator's seed and offset at the call and launches a kernel that is a pure function of them
// (philox.h): the same numbers, whoever runs it and with how many threads.
#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/TransformationHelper.h>
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
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <optional>

#include "backend/generator.h"
#include "ops/box_muller.h"
#include "ops/launch.h"
#include "ops/philox.h"

namespace openreg::ops {

namespace {

/// What a random command draws. `a` and `b` are the distribution's parameters in the order of its
/// operator's; `range` and `base` those of integers.
struct Draw {
  backend::PhiloxState philox;
  double a;
  double b;
  std::uint64_t range;
  std::int64_t base;
};

constexpr std::int64_t kLanes = 1024;  // subsequences at a time: a block stays in the L1 cache

/// A call's four numbers, of a row of subsequences.
using Raw = std::array<std::array<std::uint32_t, kLanes>, 4>;

/// Calls `block(raw, n, place)` for all elements in blocks, in parallel: `raw` holds the numbers of
/// n subsequences, and element number `place(k) + i`, if there is one, is made of the k-th part of
/// what subsequence i drew.
template <class Block>
void for_each_block(const PhiloxGrid& grid, backend::PhiloxState philox, Block&& block) {
  const std::int64_t blocks_per_round = (grid.threads + kLanes - 1) / kLanes;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    Raw raw;
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t round = b / blocks_per_round;
      const std::int64_t first = b % blocks_per_round * kLanes;
      const std::int64_t round_begin = round * grid.unroll * grid.threads;
      const std::int64_t n =
          std::min({kLanes, grid.threads - first, grid.elements - round_begin - first});
      if (n <= 0) continue;
      philox_4x32_10(philox.seed, philox.offset + static_cast<std::uint64_t>(4 * round),
                     static_cast<std::uint64_t>(first), static_cast<std::size_t>(n), raw[0].data(),
                     raw[1].data(), raw[2].data(), raw[3].data());
      block(raw, n, [&](int k) { return round_begin + k * grid.threads + first; });
    }
  };
  constexpr std::int64_t kGrain = 8;
  at::parallel_for(0, grid.rounds * blocks_per_round, kGrain, body);
}

/// Copies elements to the places that a TensorIterator counts, in its order.
void copy_in_order(const at::Tensor& self, const at::Tensor& flat) {
  const auto bytes = self.itemsize();
  const auto* next = static_cast<const std::byte*>(flat.const_data_ptr());
  auto iterator = at::TensorIterator::borrowing_nullary_op(self);
  iterator.serial_for_each(
      [&](char** data, const std::int64_t* strides, std::int64_t inner, std::int64_t outer) {
        for (std::int64_t j = 0; j < outer; ++j) {
          for (std::int64_t i = 0; i < inner; ++i, next += bytes)
            std::memcpy(data[0] + i * strides[0] + j * strides[1], next, bytes);
        }
      },
      {0, self.numel()});
}

/// Writes elements in the order in which a TensorIterator counts them: that of memory where the
/// tensor is dense.
template <class T, class Fill>
void fill_in_order(const at::Tensor& self, Fill&& fill) {
  if (self.is_non_overlapping_and_dense()) return fill(self.data_ptr<T>());
  const auto flat = at::empty({self.numel()}, self.options());
  fill(flat.data_ptr<T>());
  copy_in_order(self, flat);
}

template <class T>
constexpr int kUnroll = sizeof(T) == 8 ? 2 : 4;  // elements made of a call's four numbers

/// Element k of a call, uniform in (0, 1].
template <class T>
T uniform_of(const Raw& raw, int k, std::int64_t i) {
  if constexpr (kUnroll<T> == 4) {
    return unit_of<T>(raw[k][i]);
  } else {
    return unit_of(raw[2 * k][i], raw[2 * k + 1][i]);
  }
}

/// Elements k and k + 1 of n calls, standard normal.
template <class T>
using Row = std::array<T, kLanes>;
template <class T>
void make_normal(const Raw& raw, int k, std::int64_t n, Row<T>& first, Row<T>& second) {
  const auto count = static_cast<std::size_t>(n);
  if constexpr (kUnroll<T> == 4) {
    box_muller(raw[k].data(), raw[k + 1].data(), first.data(), second.data(), count);
  } else {
    box_muller(raw[0].data(), raw[1].data(), raw[2].data(), raw[3].data(), first.data(),
               second.data(), count);
  }
}

enum class Base : bool { kUniform, kNormal };

/// Fills `self` with what `transform` makes of reals of type T, uniform or normal ones.
template <class Out, class T, Base kBase, class Transform>
void fill_with_reals(const at::Tensor& self, const Draw& draw, Transform&& transform) {
  const PhiloxGrid grid(self.numel(), kUnroll<T>);
  fill_in_order<Out>(self, [&](Out* out) {
    for_each_block(grid, draw.philox, [&](const Raw& raw, std::int64_t n, auto&& place) {
      const auto store = [&](int k, auto&& real) {
        const auto count = std::min(n, grid.elements - place(k));
        for (std::int64_t i = 0; i < count; ++i)
          out[place(k) + i] = static_cast<Out>(transform(real(i)));
      };
      if constexpr (kBase == Base::kUniform) {
        for (int k = 0; k < kUnroll<T> && place(k) < grid.elements; ++k)
          store(k, [&](std::int64_t i) { return uniform_of<T>(raw, k, i); });
      } else {
        Row<T> first;
        Row<T> second;
        for (int k = 0; k < kUnroll<T> && place(k) < grid.elements; k += 2) {
          make_normal<T>(raw, k, n, first, second);
          store(k, [&](std::int64_t i) { return first[i]; });
          store(k + 1, [&](std::int64_t i) { return second[i]; });
        }
      }
    });
  });
}

template <class T>
using RealOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Calls `f` with a value of the element type, of those that the CPU's kernel takes; `Name` is a
/// function without state that returns the CPU's name for the kernel, for the error.
template <class Name, class F>
void dispatch_floating(const at::Tensor& self, Name, F&& f) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), Name{}(),
                                  [&] { f(scalar_t{}); });
}
template <class Name, class F>
void dispatch_all(const at::Tensor& self, Name, F&& f) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(), Name{}(),
                             [&] { f(scalar_t{}); });
}

void run_uniform(const at::Tensor& self, const Draw& draw) {
  dispatch_floating(
      self, [] { return "uniform_kernel_cpu"; },
      [&]<class Out>(Out) {
        using T = RealOf<Out>;
        const auto to = static_cast<Out>(draw.b);
        const auto low = static_cast<T>(static_cast<Out>(draw.a));
        const T range = static_cast<T>(to) - low;
        fill_with_reals<Out, T, Base::kUniform>(self, draw, [=](T u) {
          const T value = u * range + low;
          return static_cast<Out>(value) == to ? low : value;  // (0, 1] becomes [from, to)
        });
      });
}

template <bool kExponential>
void run_normal(const at::Tensor& self, const Draw& draw) {
  const auto name = [] { return kExponential ? "log_normal_cpu" : "normal_kernel_cpu"; };
  dispatch_floating(self, name, [&]<class Out>(Out) {
    using T = RealOf<Out>;
    const auto mean = static_cast<T>(draw.a);
    const auto std = static_cast<T>(draw.b);
    fill_with_reals<Out, T, Base::kNormal>(self, draw, [=](T x) {
      const T value = x * std + mean;
      return kExponential ? std::exp(value) : value;
    });
  });
}

void run_exponential(const at::Tensor& self, const Draw& draw) {
  dispatch_floating(
      self, [] { return "exponential_cpu"; },
      [&]<class Out>(Out) {
        using T = RealOf<Out>;
        constexpr T kHalfStep = std::numeric_limits<T>::epsilon() / 2;
        const auto scale = -1 / static_cast<T>(draw.a);
        fill_with_reals<Out, T, Base::kUniform>(self, draw, [=](T u) {
          return scale * (u >= 1 - kHalfStep ? -kHalfStep : std::log(u));  // never 0
        });
      });
}

void run_cauchy(const at::Tensor& self, const Draw& draw) {
  dispatch_floating(
      self, [] { return "cauchy_cpu"; },
      [&]<class Out>(Out) {
        using T = RealOf<Out>;
        const auto median = static_cast<T>(draw.a);
        const auto sigma = static_cast<T>(draw.b);
        fill_with_reals<Out, T, Base::kUniform>(self, draw, [=](T u) {
          if constexpr (std::is_same_v<T, float>) {  // its tangent overflows next to 0 and 1
            constexpr T kEpsilon = std::numeric_limits<T>::epsilon();
            u = std::clamp(u, kEpsilon, 1 - kEpsilon);
          }
          return median + sigma * std::tan(std::numbers::pi_v<T> * (u - static_cast<T>(0.5)));
        });
      });
}

void run_geometric(const at::Tensor& self, const Draw& draw) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.scalar_type() != at::kBool,
                              "\"geometric_cpu\" not implemented for 'Bool'");
  dispatch_all(
      self, [] { return "geometric_cpu"; },
      [&]<class Out>(Out) {
        using T = RealOf<Out>;
        const auto log_miss = std::log1p(-static_cast<T>(draw.a));
        fill_with_reals<Out, T, Base::kUniform>(
            self, draw, [=](T u) { return std::ceil(std::log(u) / log_miss); });
      });
}

void run_bernoulli(const at::Tensor& self, const Draw& draw) {
  dispatch_all(
      self, [] { return "bernoulli_scalar_cpu_"; },
      [&]<class Out>(Out) {
        using T = RealOf<Out>;
        const auto p = static_cast<T>(draw.a);
        fill_with_reals<Out, T, Base::kUniform>(self, draw, [=](T u) { return u < p; });
      });
}

/// Integers: `number` makes an element of 32 random bits, or of 64.
template <class Bits, class Out, class Number>
void fill_with_integers(const at::Tensor& self, const Draw& draw, Number&& number) {
  const PhiloxGrid grid(self.numel(), kUnroll<Bits>);
  fill_in_order<Out>(self, [&](Out* out) {
    for_each_block(grid, draw.philox, [&](const Raw& raw, std::int64_t n, auto&& place) {
      for (int k = 0; k < kUnroll<Bits>; ++k) {
        const std::int64_t end = std::min(place(k) + n, grid.elements);
        for (std::int64_t at = place(k), i = 0; at < end; ++at, ++i) {
          if constexpr (kUnroll<Bits> == 4) {
            out[at] = number(raw[k][i]);
          } else {
            out[at] = number(static_cast<std::uint64_t>(raw[2 * k][i]) << 32 | raw[2 * k + 1][i]);
          }
        }
      }
    });
  });
}

/// 32 bits prefer the lower numbers of a range a little; that is allowed to be some 5 %.
bool takes_64_bits(std::uint64_t range) { return range >= std::uint64_t{1} << 28; }

void run_random_from_to(const at::Tensor& self, const Draw& draw) {
  const auto fill = [&]<class Out>(Out) {
    const auto number = [&](auto bits) {
      return at::transformation::uniform_int_from_to<Out>(bits, draw.range, draw.base);
    };
    if (takes_64_bits(draw.range)) {
      fill_with_integers<std::uint64_t, Out>(self, draw, number);
    } else {
      fill_with_integers<std::uint32_t, Out>(self, draw, number);
    }
  };
  AT_DISPATCH_V2(self.scalar_type(), "random_from_to_kernel_cpu",
                 AT_WRAP([&] { fill(scalar_t{}); }), AT_EXPAND(AT_ALL_TYPES),
                 AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16);
}

void run_random_full_range(const at::Tensor& self, const Draw& draw) {
  dispatch_all(
      self, [] { return "random_full_64_bits_range_kernel_cpu"; },
      [&]<class Out>(Out) {
        fill_with_integers<std::uint64_t, Out>(self, draw, [](std::uint64_t bits) {
          return at::transformation::uniform_int_full_range<Out>(bits);
        });
      });
}

void run_random(const at::Tensor& self, const Draw& draw) {
  dispatch_all(
      self, [] { return "random_kernel_cpu"; },
      [&]<class Out>(Out) {
        using Bits = std::conditional_t<sizeof(Out) == 8, std::uint64_t, std::uint32_t>;
        fill_with_integers<Bits, Out>(
            self, draw, [](Bits bits) { return at::transformation::uniform_int<Out>(bits); });
      });
}

/// A kernel of one tensor and what to draw, and its launch: element counts decide how far the
/// generator advances.
template <auto kRun>
struct RandomKernel {
  static void run(std::span<const std::byte> command) {
    ArgumentReader reader(command);
    auto& self = reader.tensor();
    kRun(self, reader.value<Draw>());
  }
  static void launch(const Kernel& kernel, const at::Tensor& self, int unroll,
                     const std::optional<at::Generator>& generator, Draw draw) {
    const auto device = self.device();
    draw.philox = backend::reserve_philox(generator, device.index(),
                                          PhiloxGrid(self.numel(), unroll).numbers());
    ArgumentWriter writer(kernel.name(), device);
    writer.tensor(self, Access::kWrite);
    writer.value(draw);
    ops::launch(kernel, writer);
  }
};

int unroll_of_reals(const at::Tensor& self) { return self.scalar_type() == at::kDouble ? 2 : 4; }

template <auto kRun>
void launch_reals(const Kernel& kernel, const at::Tensor& self,
                  const std::optional<at::Generator>& generator, double a, double b) {
  RandomKernel<kRun>::launch(kernel, self, unroll_of_reals(self), generator,
                             {.philox = {}, .a = a, .b = b, .range = 0, .base = 0});
}

const Kernel uniform_kernel{"aten::uniform_", &RandomKernel<&run_uniform>::run};
const Kernel normal_kernel{"aten::normal_", &RandomKernel<&run_normal<false>>::run};
const Kernel log_normal_kernel{"aten::log_normal_", &RandomKernel<&run_normal<true>>::run};
const Kernel exponential_kernel{"aten::exponential_", &RandomKernel<&run_exponential>::run};
const Kernel cauchy_kernel{"aten::cauchy_", &RandomKernel<&run_cauchy>::run};
const Kernel geometric_kernel{"aten::geometric_", &RandomKernel<&run_geometric>::run};
const Kernel bernoulli_kernel{"aten::bernoulli_.float", &RandomKernel<&run_bernoulli>::run};
const Kernel random_kernel{"aten::random_", &RandomKernel<&run_random>::run};
const Kernel random_from_to_kernel{"aten::random_.from", &RandomKernel<&run_random_from_to>::run};
const Kernel random_full_range_kernel{"aten::random_.full_range",
                                      &RandomKernel<&run_random_full_range>::run};

using Generator = std::optional<at::Generator>;

void uniform(at::TensorIteratorBase& iter, double from, double to, Generator generator) {
  launch_reals<&run_uniform>(uniform_kernel, iter.tensor(0), generator, from, to);
}
void normal(const at::TensorBase& self, double mean, double std, Generator generator) {
  launch_reals<&run_normal<false>>(normal_kernel, at::Tensor(self), generator, mean, std);
}
void log_normal(at::TensorIteratorBase& iter, double mean, double std, Generator generator) {
  launch_reals<&run_normal<true>>(log_normal_kernel, iter.tensor(0), generator, mean, std);
}
void exponential(at::TensorIteratorBase& iter, double lambda, Generator generator) {
  TORCH_CHECK(at::isFloatingType(iter.dtype()),
              "Exponential distribution is a continuous probability distribution. dtype must be a "
              "floating point but you specified ",
              iter.dtype());
  launch_reals<&run_exponential>(exponential_kernel, iter.tensor(0), generator, lambda, 0);
}
void cauchy(at::TensorIteratorBase& iter, double median, double sigma, Generator generator) {
  launch_reals<&run_cauchy>(cauchy_kernel, iter.tensor(0), generator, median, sigma);
}
void geometric(at::TensorIteratorBase& iter, double p, Generator generator) {
  launch_reals<&run_geometric>(geometric_kernel, iter.tensor(0), generator, p, 0);
}
void bernoulli_scalar(const at::TensorBase& self, double p, Generator generator) {
  launch_reals<&run_bernoulli>(bernoulli_kernel, at::Tensor(self), generator, p, 0);
}
void random(at::TensorIteratorBase& iter, Generator generator) {
  const int unroll = c10::elementSize(iter.dtype()) == 8 ? 2 : 4;
  RandomKernel<&run_random>::launch(random_kernel, iter.tensor(0), unroll, generator, {});
}
void random_from_to(at::TensorIteratorBase& iter, std::uint64_t range, std::int64_t base,
                    Generator generator) {
  const int unroll = takes_64_bits(range) ? 2 : 4;
  RandomKernel<&run_random_from_to>::launch(
      random_from_to_kernel, iter.tensor(0), unroll, generator,
      {.philox = {}, .a = 0, .b = 0, .range = range, .base = base});
}
void random_full_range(at::TensorIteratorBase& iter, Generator generator) {
  RandomKernel<&run_random_full_range>::launch(random_full_range_kernel, iter.tensor(0), 2,
                                               generator, {});
}

/// With a probability for each element: subsequence i / 4 makes element i, and all draw once.
void run_bernoulli_tensor(std::span<const std::byte> command) {
  ArgumentReader reader(command);
  auto& self = reader.tensor();
  const auto probabilities = reader.tensor().to(at::kFloat).contiguous();
  const auto philox = reader.value<backend::PhiloxState>();
  const auto* p = probabilities.const_data_ptr<float>();
  const auto elements = self.numel();
  const auto inside = probabilities.ge(0).logical_and_(probabilities.le(1)).all().item<bool>();
  TORCH_CHECK(inside, "bernoulli expects all probabilities to be in [0, 1]");
  const auto drawn =
      at::empty(self.sizes(), self.options().memory_format(at::MemoryFormat::Contiguous));
  dispatch_all(
      self, [] { return "bernoulli_tensor_cpu_self_"; },
      [&]<class Out>(Out) {
        Out* out = drawn.data_ptr<Out>();
        Raw raw;
        for (std::int64_t begin = 0; begin < elements; begin += 4 * kLanes) {
          const auto n = std::min(kLanes, (elements - begin + 3) / 4);
          philox_4x32_10(philox.seed, philox.offset, static_cast<std::uint64_t>(begin / 4),
                         static_cast<std::size_t>(n), raw[0].data(), raw[1].data(), raw[2].data(),
                         raw[3].data());
          const auto end = std::min(begin + 4 * n, elements);
          for (auto i = begin; i < end; ++i) {
            const auto lane = (i - begin) / 4;
            out[i] = static_cast<Out>(unit_of<float>(raw[i % 4][lane]) <= p[i]);
          }
        }
      });
  self.copy_(drawn);
}
const Kernel bernoulli_tensor_kernel{"aten::bernoulli_.Tensor", &run_bernoulli_tensor};

void bernoulli_tensor(const at::TensorBase& self, const at::TensorBase& p, Generator generator) {
  constexpr std::uint64_t kNumbers = 10;
  const auto probabilities = at::Tensor(p).to(self.device()).expand(self.sizes());
  ArgumentWriter writer(bernoulli_tensor_kernel.name(), self.device());
  writer.tensor(self, Access::kWrite);
  writer.tensor(probabilities);
  writer.value(backend::reserve_philox(generator, self.device().index(), kNumbers));
  launch(bernoulli_tensor_kernel, writer);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
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
  m.impl("bernoulli.out", TORCH_FN(at::native::bernoulli_out));
}

}  // namespace openreg::ops

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(uniform_stub, &openreg::ops::uniform)
REGISTER_PRIVATEUSE1_DISPATCH(normal_stub, &openreg::ops::normal)
REGISTER_PRIVATEUSE1_DISPATCH(log_normal_stub, &openreg::ops::log_normal)
REGISTER_PRIVATEUSE1_DISPATCH(exponential_stub, &openreg::ops::exponential)
REGISTER_PRIVATEUSE1_DISPATCH(cauchy_stub, &openreg::ops::cauchy)
REGISTER_PRIVATEUSE1_DISPATCH(geometric_stub, &openreg::ops::geometric)
REGISTER_PRIVATEUSE1_DISPATCH(random_stub, &openreg::ops::random)
REGISTER_PRIVATEUSE1_DISPATCH(random_from_to_stub, &openreg::ops::random_from_to)
REGISTER_PRIVATEUSE1_DISPATCH(random_full_64_bits_range_stub, &openreg::ops::random_full_range)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_scalar_stub, &openreg::ops::bernoulli_scalar)
REGISTER_PRIVATEUSE1_DISPATCH(bernoulli_tensor_stub, &openreg::ops::bernoulli_tensor)

}  // namespace at::native
