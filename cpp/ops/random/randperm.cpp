// As CUDA has it: numbers are sorted by random keys, and those with equal keys are shuffled.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <vector>

#include "backend/library.h"
#include "ops/launch/function_kernel.h"
#include "ops/random/random_kernels.h"

namespace openreg::ops {

namespace {

struct Keyed {
  std::uint64_t key;
  std::int64_t number;
};

/// By key, then by number. Keys are spread evenly over `bits` bits: those whose first bits are
/// equal are few enough for the cache.
void sort_by_key(std::vector<Keyed>& all, int bits) {
  const auto less = [](const Keyed& a, const Keyed& b) {
    return a.key != b.key ? a.key < b.key : a.number < b.number;
  };
  constexpr std::size_t kFewEnough = 4096;
  if (all.size() <= kFewEnough) return std::sort(all.begin(), all.end(), less);
  constexpr int kFirstBits = 11;
  constexpr std::size_t kParts = std::size_t{1} << kFirstBits;
  const auto part = [&](const Keyed& each) { return each.key >> (bits - kFirstBits); };
  std::array<std::size_t, kParts + 1> begins{};
  for (const auto& each : all) ++begins[part(each) + 1];
  for (std::size_t i = 0; i < kParts; ++i) begins[i + 1] += begins[i];
  std::vector<Keyed> parted(all.size());
  auto next = begins;
  for (const auto& each : all) parted[next[part(each)]++] = each;
  at::parallel_for(0, kParts, 1, [&](std::int64_t first, std::int64_t last) {
    const auto at = [&](std::int64_t i) {
      return parted.begin() + static_cast<std::ptrdiff_t>(begins[static_cast<std::size_t>(i)]);
    };
    for (auto i = first; i < last; ++i) std::sort(at(i), at(i + 1), less);
  });
  all.swap(parted);
}

/// Where keys are equal, order would show: those numbers are shuffled (Fisher and Yates), with the
/// subsequence of the first one's place.
void shuffle_equal_keys(backend::PhiloxState philox, std::vector<Keyed>& all) {
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin + 1;
    while (end < all.size() && all[end].key == all[begin].key) ++end;
    if (end - begin > 1) {
      PhiloxStream stream(philox, begin);
      for (auto i = end - begin - 1; i > 0; --i)
        std::swap(all[begin + i].number, all[begin + stream.next() % (i + 1)].number);
    }
    begin = end;
  }
}

/// Bits of keys for which some two of n are equal with a probability of a tenth.
int key_bits(std::int64_t count) {
  const auto n = static_cast<double>(count);
  const auto needed = std::ceil(std::log2(n - (6 * n * n + 1) / (12 * std::log(0.9))));
  return std::min(64, static_cast<int>(needed));
}
constexpr int kBitsOfSmallKeys = 32;

template <class Key>
std::vector<Keyed> draw_keys(backend::PhiloxState philox, std::int64_t count, int bits) {
  using Limits = std::numeric_limits<Key>;
  auto keys = at::empty({count}, at::CppTypeToScalarType<Key>::value);
  fill_integers(
      philox, static_cast<std::uint64_t>(Limits::max()) - static_cast<std::uint64_t>(Limits::min()),
      Limits::min(), keys);
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  const auto* key = static_cast<const Key*>(keys.const_data_ptr());
  // CUDA sorts signed keys: where all bits count, negative ones come first.
  constexpr int kBits = std::numeric_limits<std::make_unsigned_t<Key>>::digits;
  const std::uint64_t sign = bits == kBits ? std::uint64_t{1} << (kBits - 1) : 0;
  std::vector<Keyed> all(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    all[i] = {(static_cast<std::uint64_t>(key[i]) ^ sign) & mask, i};
  return all;
}

void randperm(backend::PhiloxState for_keys, backend::PhiloxState for_equal_keys, at::Tensor& out) {
  const auto count = out.numel();
  if (count == 0) return;
  const int bits = key_bits(count);
  auto all = bits <= kBitsOfSmallKeys ? draw_keys<std::int32_t>(for_keys, count, bits)
                                      : draw_keys<std::int64_t>(for_keys, count, bits);
  sort_by_key(all, bits);
  shuffle_equal_keys(for_equal_keys, all);
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "randperm", [&] {
    auto* to = out.mutable_data_ptr<scalar_t>();
    const auto stride = out.stride(0);
    for (std::int64_t i = 0; i < count; ++i) to[i * stride] = static_cast<scalar_t>(all[i].number);
  });
}
const FunctionKernel<&randperm> randperm_kernel{"aten::randperm"};

/// \param out gets the numbers from 0 to n - 1, shuffled: shape [n], any real dtype that holds
/// them.
at::Tensor& randperm_out(std::int64_t n, std::optional<at::Generator> generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(!generator.has_value() || out.device() == generator->device(), "Expected a '",
              out.device(), "' generator device but found '", generator->device(), "'");
  at::native::check_supported_max_int_with_precision(n, at::empty({0}, out.scalar_type()));
  out.resize_({n});
  if (n == 0) return out;
  constexpr int kNumbersOf64Bits = 2;
  const auto device = out.device();
  const auto keys = take_numbers(generator, out, kNumbersOf64Bits);
  randperm_kernel.launch(device, keys,
                         take_numbers(generator, device, static_cast<std::uint64_t>(n)), out);
  return out;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("randperm.generator_out", TORCH_FN(randperm_out)); }

}  // namespace openreg::ops
