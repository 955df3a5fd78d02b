// Random numbers from a key, a tensor of seed and offset, instead of a generator (torch.func's
// random module): number k of a call is that of Philox at counter offset + k, subsequence 0.
#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>

#include "ops/launch/function_kernel.h"
#include "ops/random/random_kernels.h"
#include "ops/random/transformation.h"
#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

namespace {

using Key = std::array<std::uint64_t, 2>;

/// Four numbers as a key.
Key key_of(const std::array<std::uint32_t, 4>& numbers) {
  const auto join = [](std::uint32_t low, std::uint32_t high) {
    return std::uint64_t{high} << 32 | low;
  };
  return {join(numbers[0], numbers[1]), join(numbers[2], numbers[3])};
}

std::span<const Key> keys_of(const at::Tensor& contiguous) {
  return {reinterpret_cast<const Key*>(contiguous.const_data_ptr()),
          static_cast<std::size_t>(contiguous.numel() / 2)};
}

/// Derives keys number `first` to `first + out.size(0) - 1` from each key.
void derive_keys(const at::Tensor& keys, std::int64_t first, at::Tensor& out) {
  const auto dense = keys.contiguous();
  auto* next = reinterpret_cast<Key*>(out.mutable_data_ptr());
  for (std::int64_t i = 0; i < out.size(0); ++i) {
    const auto call = static_cast<std::uint64_t>(first) + static_cast<std::uint64_t>(i);
    for (const auto& [seed, offset] : keys_of(dense))
      *next++ = key_of(philox_4x32_10(seed, offset + call, 0));
  }
}
const FunctionKernel<&derive_keys> derive_kernel{"aten::_philox_key_split"};

enum class Distribution : std::uint8_t { kUniform, kNormal };

/// The elements from one call's numbers: 4, or 2 of 64 bits.
template <class T>
void uniform_of_call(const Raw& raw, std::int64_t i, T from, T to, T* out) {
  for (int k = 0; k < kUnroll<RealOf<T>>; ++k) {
    if constexpr (std::is_same_v<T, double>) {
      const auto bits = std::uint64_t{raw[2 * k][i]} << 32 | raw[2 * k + 1][i];
      out[k] = at::transformation::uniform_real<double>(bits, from, to);
    } else {
      out[k] = static_cast<T>(at::transformation::uniform_real<T>(raw[k][i], from, to));
    }
  }
}

template <class T>
void normal_of_call(const Raw& raw, std::int64_t i, double mean, double std, T* out) {
  using Real = RealOf<T>;
  const auto unit = [&](int k) {  // in (0, 1], of 64 bits for double
    constexpr Real kStep = Real(1) / (std::uint64_t{1} << 32);
    if constexpr (std::is_same_v<T, double>) {
      return std::fma(static_cast<Real>(raw[2 * k][i]), kStep,
                      static_cast<Real>(raw[2 * k + 1][i]) * kStep * kStep + kStep * kStep / 2);
    } else {
      return std::fma(static_cast<Real>(raw[k][i]), kStep, kStep / 2);
    }
  };
  for (int k = 0; k < kUnroll<Real>; k += 2) {
    const Real radius = std::sqrt(-2 * std::log(unit(k)));
    const Real angle = 2 * std::numbers::pi_v<Real> * unit(k + 1);
    out[k] =
        static_cast<T>(radius * std::cos(angle) * static_cast<Real>(std) + static_cast<Real>(mean));
    out[k + 1] =
        static_cast<T>(radius * std::sin(angle) * static_cast<Real>(std) + static_cast<Real>(mean));
  }
}

/// Makes the elements of one key: `a` and `b` are the bounds, or mean and deviation.
template <class T>
void fill(Key key, Distribution distribution, double a, double b, T* out, std::int64_t count) {
  constexpr std::int64_t kPerCall = kUnroll<RealOf<T>>;
  const auto calls = (count + kPerCall - 1) / kPerCall;
  constexpr std::int64_t kGrain = 8;
  at::parallel_for(
      0, (calls + kLanes - 1) / kLanes, kGrain, [&](std::int64_t begin, std::int64_t end) {
        Raw raw;
        std::array<T, kPerCall> made;
        for (std::int64_t block = begin; block < end; ++block) {
          const auto first = block * kLanes;
          const auto n = std::min(kLanes, calls - first);
          draw_calls(key[0], key[1] + static_cast<std::uint64_t>(first), n, raw);
          for (std::int64_t i = 0; i < n; ++i) {
            if (distribution == Distribution::kUniform) {
              uniform_of_call(raw, i, static_cast<T>(a), static_cast<T>(b), made.data());
            } else {
              normal_of_call(raw, i, a, b, made.data());
            }
            const auto at = (first + i) * kPerCall;
            std::copy_n(made.begin(), std::min(kPerCall, count - at), out + at);
          }
        }
      });
}

/// \param keys [2], or a key for each index of the leading dimensions, which have size 1 if one key
/// serves the whole dimension.
void fill_by_keys(const at::Tensor& keys, Distribution distribution, double a, double b,
                  at::Tensor& self) {
  std::int64_t per_key = self.numel();
  auto each = keys;
  if (keys.dim() > 1) {
    auto dim = self.dim();
    for (per_key = 1; dim > 0 && keys.size(dim - 1) == 1; --dim) per_key *= self.size(dim - 1);
    auto sizes = self.sizes().slice(0, static_cast<std::size_t>(dim)).vec();
    sizes.push_back(2);
    each = keys.flatten(dim, -1).expand(sizes);
  }
  each = each.contiguous();
  const auto all = keys_of(each);
  const auto out = self.is_contiguous() ? self : at::empty(self.sizes(), self.scalar_type());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(),
                                  "philox_distribution", [&] {
                                    auto* next = out.mutable_data_ptr<scalar_t>();
                                    for (const auto& key : all) {
                                      fill(key, distribution, a, b, next, per_key);
                                      next += per_key;
                                    }
                                  });
  if (!out.is_same(self)) self.copy_(out);
}
const FunctionKernel<&fill_by_keys> keyed_uniform_kernel{"aten::_philox_uniform_"};
const FunctionKernel<&fill_by_keys> keyed_normal_kernel{"aten::_philox_normal_"};

void check_key(const char* op, const at::Tensor& key, const char* shape) {
  TORCH_CHECK(key.dim() >= 1 && key.size(-1) == 2, op, ": key must have shape ", shape,
              ", got shape ", key.sizes());
  TORCH_CHECK(key.scalar_type() == at::kUInt64, op, ": key must have dtype uint64, got ",
              key.scalar_type());
}

void check_fill(const char* op, const at::Tensor& self, const at::Tensor& key) {
  TORCH_CHECK(self.is_floating_point(), op, ": self must be a floating point tensor, got ",
              self.scalar_type());
  TORCH_CHECK(self.device() == key.device(), op, ": self and key must be on the same device, got ",
              self.device(), " and ", key.device());
  check_key(op, key, "(2,) or (*batch, 2)");
  if (key.dim() > 1) {
    TORCH_CHECK(key.dim() == self.dim() + 1, op,
                ": batched key must have ndim == output ndim + 1, got key shape ", key.sizes(),
                " with output shape ", self.sizes());
    const auto batch = key.sizes().slice(0, self.dim());
    TORCH_CHECK(at::is_expandable_to(batch, self.sizes()), op, ": key batch shape ", batch,
                " is not broadcastable with output shape ", self.sizes());
  }
  at::assert_no_internal_overlap(self);
}

at::Tensor& philox_uniform_(at::Tensor& self, const at::Tensor& key, double low, double high) {
  check_fill("_philox_uniform_", self, key);
  if (self.numel() > 0)
    keyed_uniform_kernel.launch(self.device(), key, Distribution::kUniform, low, high, self);
  return self;
}

at::Tensor& philox_normal_(at::Tensor& self, const at::Tensor& key, double mean, double std) {
  check_fill("_philox_normal_", self, key);
  if (self.numel() > 0)
    keyed_normal_kernel.launch(self.device(), key, Distribution::kNormal, mean, std, self);
  return self;
}

/// \param key uint64 [*batch, 2]. \return [splits, *batch, 2].
at::Tensor philox_key_split(const at::Tensor& key, std::int64_t splits) {
  check_key("_philox_key_split", key, "(*batch, 2)");
  TORCH_CHECK(splits > 0, "_philox_key_split: num_splits must be positive, got ", splits);
  auto sizes = key.sizes().vec();
  sizes.insert(sizes.begin(), splits);
  auto out = empty_on(key.device(), sizes, at::kUInt64);
  if (out.numel() > 0) derive_kernel.launch(key.device(), key, 0, out);
  return out;
}

/// \param key uint64 [*batch, 2]. \return of the same shape: the key that a split into more than
/// `data` keys has at this index.
at::Tensor philox_key_fold_in(const at::Tensor& key, std::int64_t data) {
  check_key("_philox_key_fold_in", key, "(*batch, 2)");
  auto out = empty_on(key.device(), key.sizes(), at::kUInt64);
  if (out.numel() > 0) derive_kernel.launch(key.device(), key, data, out.unsqueeze(0));
  return out;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("_philox_uniform_", TORCH_FN(philox_uniform_));
  m.impl("_philox_normal_", TORCH_FN(philox_normal_));
  m.impl("_philox_key_split", TORCH_FN(philox_key_split));
  m.impl("_philox_key_fold_in", TORCH_FN(philox_key_fold_in));
}

}  // namespace openreg::ops
