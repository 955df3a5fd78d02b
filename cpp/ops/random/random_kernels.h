// How random kernels fill tensors, in CUDA's layout (philox.h).
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <optional>

#include "ops/random/box_muller.h"
#include "ops/random/philox.h"

namespace openreg::ops {

using Generator = std::optional<at::Generator>;  // none: the device's default one

/// Calls `block(raw, n, place)` for all elements, in blocks and in parallel: `raw` holds the
/// numbers of n subsequences, and element `place(k) + i * grid.vector`, if there is one, is made
/// from the k-th part of the numbers of subsequence i.
template <class Block>
void for_each_block(const PhiloxGrid& grid, backend::PhiloxState philox, Block&& block) {
  const std::int64_t blocks_per_round = (grid.threads + kLanes - 1) / kLanes;
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    Raw raw;
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t round = b / blocks_per_round;
      const std::int64_t first = b % blocks_per_round * kLanes;
      const std::int64_t vectors_left =
          (grid.elements - grid.element(round, 0, first) + grid.vector - 1) / grid.vector;
      const std::int64_t n = std::min({kLanes, grid.threads - first, vectors_left});
      if (n <= 0) continue;
      draw_subsequences(philox.seed, philox.offset + static_cast<std::uint64_t>(4 * round),
                        static_cast<std::uint64_t>(first), n, raw);
      block(raw, n, [&](int k) { return grid.element(round, k, first); });
    }
  };
  constexpr std::int64_t kGrain = 8;
  at::parallel_for(0, grid.rounds * blocks_per_round, kGrain, body);
}

/// Copies elements in the order in which a TensorIterator visits them.
void copy_in_order(const at::Tensor& self, const at::Tensor& flat);

/// Writes elements in the order in which a TensorIterator visits them: the order of memory if the
/// tensor is dense.
template <class T, class Fill>
void fill_in_order(const at::Tensor& self, Fill&& fill) {
  if (self.is_non_overlapping_and_dense()) return fill(self.data_ptr<T>());
  const auto flat = at::empty({self.numel()}, self.options());
  fill(flat.data_ptr<T>());
  copy_in_order(self, flat);
}

template <class T>
constexpr int kUnroll = sizeof(T) == 8 ? 2 : 4;  // elements made from a call's four numbers

/// Element k of a call, uniform in (0, 1].
template <class T>
T uniform_of(const Raw& raw, int k, std::int64_t i) {
  if constexpr (kUnroll<T> == 4) {
    return unit_of<T>(raw[k][i]);
  } else {
    return unit_of(raw[2 * k][i], raw[2 * k + 1][i]);
  }
}

/// The 64 bits from which element k of a call is made.
inline std::uint64_t bits_of(const Raw& raw, int k, std::int64_t i) {
  return static_cast<std::uint64_t>(raw[2 * k][i]) << 32 | raw[2 * k + 1][i];
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

/// Fills `self` with `transform` of uniform or normal reals of type T.
template <class Out, class T, Base kBase, class Transform>
void fill_with_reals(const at::Tensor& self, backend::PhiloxState philox, Transform&& transform) {
  const PhiloxGrid grid(self.numel(), kUnroll<T>);
  fill_in_order<Out>(self, [&](Out* out) {
    for_each_block(grid, philox, [&](const Raw& raw, std::int64_t n, auto&& place) {
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

/// The CPU's name of a kernel, for errors.
struct KernelName {
  template <std::size_t size>
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is one, in dispatch_all<"name">
  consteval KernelName(const char (&name)[size]) {
    std::copy_n(name, size, text.data());
  }
  std::array<char, 40> text{};
};
/// Calls `f` with a value of the element type, if the CPU's kernel takes that type.
template <KernelName kName, class F>
void dispatch_floating(const at::Tensor& self, F&& f) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), kName.text.data(),
                                  [&] { f(scalar_t{}); });
}
template <KernelName kName, class F>
void dispatch_all(const at::Tensor& self, F&& f) {
  AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kHalf, at::kBFloat16, self.scalar_type(),
                             kName.text.data(), [&] { f(scalar_t{}); });
}

/// Throws c10::Error, with the CPU's message, unless `device` is an openreg device: operators on
/// CPU tensors are dispatched to the device too if they get its generator.
void expect_our_device(c10::Device device);

/// Takes `count` numbers from `generator`, or from the device's default one. Throws as
/// expect_our_device() and backend::reserve_philox() do.
backend::PhiloxState take_numbers(const Generator& generator, c10::Device device,
                                  std::uint64_t count);
/// Takes the numbers for a kernel that fills `self` and makes `unroll` elements per call of a
/// subsequence. Throws as the other overload does.
backend::PhiloxState take_numbers(const Generator& generator, const at::TensorBase& self,
                                  int unroll);
int unroll_of_reals(const at::TensorBase& self);
int unroll_of_integers(std::uint64_t range);
bool takes_64_bits(std::uint64_t range);

/// Fills a CPU tensor as exponential_ and random_(base, base + range) do, for kernels that are made
/// of them.
void fill_exponential(backend::PhiloxState philox, double lambda, at::Tensor& self);
void fill_integers(backend::PhiloxState philox, std::uint64_t range, std::int64_t base,
                   at::Tensor& self);

}  // namespace openreg::ops
