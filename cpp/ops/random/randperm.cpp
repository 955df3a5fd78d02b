// As on CUDA: numbers are sorted by random keys, and those with equal keys are shuffled.
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ops/launch/function_kernel.h"
#include "ops/random/random_kernels.h"
#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// The number of bits with which two of n keys are equal with a probability of a tenth.
int key_bits(std::int64_t count) {
  const auto n = static_cast<double>(count);
  const auto needed = std::ceil(std::log2(n - (6 * n * n + 1) / (12 * std::log(0.9))));
  return std::min(64, static_cast<int>(needed));
}

/// The words that are sorted have a key in the upper bits and its number in the lower ones. Keys
/// are spread evenly: their first bits select the part of the result, which is sorted separately
/// and fits into the cache; the next bits select the slot in that part, which few words share.
struct Layout {
  explicit Layout(std::int64_t count)
      : key_bits(ops::key_bits(count)),
        number_bits(std::bit_width(static_cast<std::uint64_t>(count - 1))),
        part_bits(std::clamp(number_bits - kBitsInPart, 0, kMostPartBits)),
        slot_bits(number_bits - part_bits + 1) {}

  std::int64_t parts() const { return std::int64_t{1} << part_bits; }
  std::size_t slots() const { return std::size_t{1} << slot_bits; }
  int part_shift() const { return key_bits - part_bits; }                    ///< of a key
  int slot_shift() const { return part_shift() - slot_bits + number_bits; }  ///< of a word
  /// Words need not contain the bits that select the part.
  bool fits_64_bits() const { return part_shift() + number_bits <= 64; }

  int key_bits;
  int number_bits;
  int part_bits;
  int slot_bits;

 private:
  static constexpr int kBitsInPart = 11;
  static constexpr int kMostPartBits = 12;  // places to write to at a time
};

/// Draws the key of each number.
void draw_keys(backend::PhiloxState philox, int key_bits, std::span<std::uint64_t> keys) {
  // CUDA draws signed integers of the smallest type that has the bits, from its least value up to,
  // but not including, the greatest, and sorts them as signed ones if all bits are used. Here they
  // are unsigned and begin at 0.
  constexpr std::uint64_t kRange32 = 0xFFFFFFFF;
  constexpr std::uint64_t kRange64 = ~std::uint64_t{0};
  const bool small = key_bits <= 32;
  const auto mask = kRange64 >> (64 - key_bits);
  const PhiloxGrid grid(std::ssize(keys), kUnroll<std::uint64_t>);
  for_each_block(grid, philox, [&](const Raw& raw, std::int64_t n, auto&& place) {
    for (int k = 0; k < kUnroll<std::uint64_t>; ++k) {
      const auto count = std::min(n, grid.elements - place(k));
      for (std::int64_t i = 0; i < count; ++i) {
        const auto bits = bits_of(raw, k, i);
        keys[place(k) + i] = (small ? bits % kRange32 : bits % kRange64) & mask;
      }
    }
  });
}

/// Makes words from the keys and puts them into their parts. Each thread has a share of the
/// numbers, and its own places for them in every part: the order within a part does not matter yet.
/// \return where the parts end.
template <class Word>
std::vector<std::int64_t> make_parts(std::span<const std::uint64_t> keys, const Layout& layout,
                                     Word* words) {
  const std::int64_t shares = layout.parts() == 1 ? 1 : at::get_num_threads();
  const auto for_each_share = [&](auto&& f) {
    at::parallel_for(0, shares, 1, [&](std::int64_t begin, std::int64_t end) {
      for (auto share = begin; share < end; ++share)
        f(share, share * std::ssize(keys) / shares, (share + 1) * std::ssize(keys) / shares);
    });
  };
  const int part_shift = layout.part_shift();
  const auto parts = layout.parts();
  std::vector<std::int64_t> places(shares * parts);
  for_each_share([&](std::int64_t share, std::int64_t begin, std::int64_t end) {
    auto* const counts = &places[share * parts];
    for (auto number = begin; number < end; ++number) ++counts[keys[number] >> part_shift];
  });
  std::int64_t sum = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t share = 0; share < shares; ++share)
      sum += std::exchange(places[share * parts + part], sum);
  }
  for_each_share([&](std::int64_t share, std::int64_t begin, std::int64_t end) {
    auto* const next = &places[share * parts];
    const int number_bits = layout.number_bits;
    for (auto number = begin; number < end; ++number) {
      const auto key = keys[number];
      words[next[key >> part_shift]++] =
          static_cast<Word>(key) << number_bits | static_cast<Word>(number);
    }
  });
  places.erase(places.begin(), places.end() - parts);  // the last share ends where its parts do
  return places;
}

/// Puts words into their slots, where most are alone, and sorts the rest.
/// \param slots scratch space.
template <class Word>
void sort_part(std::span<const Word> words, const Layout& layout, std::vector<std::uint32_t>& slots,
               std::vector<Word>& sorted) {
  const auto slot = [shift = layout.slot_shift(), mask = layout.slots() - 1](Word word) {
    return static_cast<std::size_t>(word >> shift) & mask;
  };
  slots.assign(layout.slots(), 0);
  for (const auto word : words) ++slots[slot(word)];
  std::uint32_t sum = 0;
  for (auto& place : slots) sum += std::exchange(place, sum);
  sorted.resize(words.size());
  for (const auto word : words) sorted[slots[slot(word)]++] = word;
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const auto word = sorted[i];
    auto at = i;
    for (; at > 0 && sorted[at - 1] > word; --at) sorted[at] = sorted[at - 1];
    sorted[at] = word;
  }
}

/// Numbers with equal keys would stay in order: they are shuffled (Fisher and Yates), with the
/// subsequence whose number is the place of the first one.
/// \param place of the first word among all.
template <class Word>
void shuffle_equal_keys(backend::PhiloxState philox, int number_bits, std::int64_t place,
                        std::vector<Word>& sorted) {
  const auto equal = [&](Word a, Word b) { return (a ^ b) >> number_bits == 0; };
  for (auto begin = sorted.begin();
       begin = std::adjacent_find(begin, sorted.end(), equal), begin != sorted.end();) {
    const auto end =
        std::find_if_not(begin, sorted.end(), [&](Word word) { return equal(word, *begin); });
    PhiloxStream stream(philox, static_cast<std::uint64_t>(place + (begin - sorted.begin())));
    for (auto i = end - begin - 1; i > 0; --i) std::swap(begin[i], begin[stream.next() % (i + 1)]);
    begin = end;
  }
}

template <class Word>
void permute(backend::PhiloxState philox, const Layout& layout, std::span<const std::uint64_t> keys,
             Word* words, at::Tensor& out) {
  const auto ends = make_parts(keys, layout, words);
  const auto stride = out.stride(0);
  const auto number_mask = (Word{1} << layout.number_bits) - 1;
  at::parallel_for(0, layout.parts(), 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<std::uint32_t> slots;
    std::vector<Word> sorted;
    auto begin = first == 0 ? 0 : ends[first - 1];
    for (auto part = first; part < last; ++part) {
      sort_part<Word>({words + begin, words + ends[part]}, layout, slots, sorted);
      shuffle_equal_keys(philox, layout.number_bits, begin, sorted);
      AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "randperm", [&] {
        auto* to = out.mutable_data_ptr<scalar_t>() + begin * stride;
        for (const auto word : sorted) {
          *to = static_cast<scalar_t>(static_cast<std::int64_t>(word & number_mask));
          to += stride;
        }
      });
      begin = ends[part];
    }
  });
}

/// \param scratch words and, last, keys.
void randperm_in(std::span<std::uint64_t> scratch, backend::PhiloxState for_keys,
                 backend::PhiloxState for_equal_keys, at::Tensor& out) {
  const auto count = static_cast<std::size_t>(out.numel());
  if (count == 0) return;
  const Layout layout(out.numel());
  const auto keys = scratch.last(count);
  draw_keys(for_keys, layout.key_bits, keys);
  if (layout.fits_64_bits()) return permute(for_equal_keys, layout, keys, scratch.data(), out);
  __extension__ using WideWord = unsigned __int128;
  permute(for_equal_keys, layout, keys, reinterpret_cast<WideWord*>(scratch.data()), out);
}

void randperm(backend::PhiloxState for_keys, backend::PhiloxState for_equal_keys,
              at::Tensor& scratch, at::Tensor& out) {
  randperm_in({static_cast<std::uint64_t*>(scratch.mutable_data_ptr()),
               static_cast<std::size_t>(scratch.numel())},
              for_keys, for_equal_keys, out);
}
const FunctionKernel<&randperm> randperm_kernel{"aten::randperm"};

/// Without device memory, which would cost more than sorting so few numbers.
void randperm_of_few(backend::PhiloxState for_keys, backend::PhiloxState for_equal_keys,
                     at::Tensor& out) {
  std::vector<std::uint64_t> scratch(static_cast<std::size_t>(2 * out.numel()));
  randperm_in(scratch, for_keys, for_equal_keys, out);
}
const FunctionKernel<&randperm_of_few> randperm_of_few_kernel{"aten::randperm_of_few"};

/// \param out gets the numbers from 0 to n - 1, shuffled: shape [n], any real dtype that holds
/// them.
at::Tensor& randperm_out(std::int64_t n, Generator generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(!generator.has_value() || out.device() == generator->device(), "Expected a '",
              out.device(), "' generator device but found '", generator->device(), "'");
  at::native::check_supported_max_int_with_precision(n, at::empty({0}, out.scalar_type()));
  out.resize_({n});
  if (n == 0) return out;
  const auto device = out.device();
  const auto keys = take_numbers(generator, out, kUnroll<std::uint64_t>);
  const auto equal_keys = take_numbers(generator, device, static_cast<std::uint64_t>(n));
  const Layout layout(n);
  if (layout.parts() == 1) {
    randperm_of_few_kernel.launch(device, keys, equal_keys, out);
  } else {
    const auto scratch = empty_on(device, {layout.fits_64_bits() ? 2 : 3, n}, at::kLong);
    randperm_kernel.launch(device, keys, equal_keys, scratch, out);
  }
  return out;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("randperm.generator_out", TORCH_FN(randperm_out)); }

}  // namespace openreg::ops
