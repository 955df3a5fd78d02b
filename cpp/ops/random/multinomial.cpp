#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "ops/launch/function_kernel.h"
#include "ops/launch/vector_clones.h"
#include "ops/random/random_kernels.h"
#include "ops/tensors/factories.h"
#include "ops/wire/same_device.h"
#include "slot.h"

namespace openreg::ops {

namespace {

// An exponential race: category i arrives after an exponentially distributed time with rate p_i,
// and the first ones are the sample.
void without_replacement(backend::PhiloxState philox, const at::Tensor& probabilities,
                         at::Tensor& out) {
  const auto valid = probabilities.max()
                         .lt(std::numeric_limits<double>::infinity())
                         .logical_and_(probabilities.min().ge(0));
  TORCH_CHECK(valid.item<bool>(), "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(!probabilities.sum(-1).eq(0).any().item<bool>(),
              "invalid multinomial distribution (sum of probabilities <= 0)");
  auto speeds = at::empty_like(probabilities);
  fill_exponential(philox, 1, speeds);
  at::div_out(speeds, probabilities, speeds);
  if (out.size(-1) == 1) {
    out.copy_(speeds.argmax(-1, /*keepdim=*/true));
  } else {
    out.copy_(std::get<1>(speeds.topk(out.size(-1))));
  }
}

// CUDA's grid: blocks of 128 threads, one thread for each sample, and one row of blocks for each
// distribution, up to the maximum of rows. Each sample takes the first number of a call.
constexpr std::int64_t kThreadsPerRowBlock = 128;
constexpr std::int64_t kMostRows = 65535;
constexpr std::int64_t rows_of_grid(std::int64_t distributions) {
  return std::min(distributions, kMostRows);
}
constexpr std::int64_t calls_per_thread(std::int64_t distributions) {
  return (distributions - 1) / rows_of_grid(distributions) + 1;
}

constexpr std::int64_t kLeastPerThread = 4096;  // samples or categories for a thread

OPENREG_VECTOR_CLONES
void divide(std::span<float> values, float by) {
  for (auto& value : values) value /= by;
}
OPENREG_VECTOR_CLONES
void divide(std::span<double> values, double by) {
  for (auto& value : values) value /= by;
}

using Categories = std::array<std::int32_t, kLanes>;

/// The category in whose part each number lies: the first one whose end is not below it, so never
/// one of probability 0. The searches of a block advance together step by step, without branches.
template <class T>
[[gnu::always_inline]] inline void search_together(std::span<const T> ends,
                                                   const std::uint32_t* numbers, std::size_t count,
                                                   Categories& found) {
  std::array<T, kLanes> at;
  for (std::size_t i = 0; i < count; ++i) at[i] = static_cast<T>(unit_of<float>(numbers[i]));
  std::fill_n(found.begin(), count, 0);
  for (auto left = static_cast<std::int32_t>(ends.size()); left > 1;) {
    const auto half = left / 2;
    const T* const last = ends.data() + half - 1;
    for (std::size_t i = 0; i < count; ++i) found[i] += last[found[i]] < at[i] ? half : 0;
    left -= half;
  }
}
OPENREG_VECTOR_CLONES
void find_categories(std::span<const float> ends, const std::uint32_t* numbers, std::size_t count,
                     Categories& found) {
  search_together(ends, numbers, count, found);
}
OPENREG_VECTOR_CLONES
void find_categories(std::span<const double> ends, const std::uint32_t* numbers, std::size_t count,
                     Categories& found) {
  search_together(ends, numbers, count, found);
}

/// The ends of the categories' parts of [0, 1].
template <class T>
void find_ends(std::span<const T> probabilities, std::span<T> ends) {
  T sum = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const T p = probabilities[i];
    TORCH_CHECK(p >= 0, "invalid multinomial distribution (encountering probability entry < 0)");
    TORCH_CHECK(
        std::isfinite(p),
        "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
    ends[i] = sum += p;
  }
  TORCH_CHECK(sum > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
  divide(ends, sum);
}

/// Draws the samples of a distribution from number `first` on.
/// \param thread the one that draws sample 0.
template <class T>
void draw_samples(backend::PhiloxState philox, std::int64_t thread, std::span<const T> ends,
                  std::int64_t first, std::span<std::int64_t> samples) {
  Raw raw;
  Categories found;
  for (std::size_t done = 0; done < samples.size();) {
    const auto block = samples.subspan(done, std::min<std::size_t>(kLanes, samples.size() - done));
    const auto from = static_cast<std::uint64_t>(thread + first) + done;
    draw_subsequences(philox.seed, philox.offset, from, std::ssize(block), raw);
    find_categories(ends, raw[0].data(), block.size(), found);
    std::copy_n(found.begin(), block.size(), block.begin());
    done += block.size();
  }
}

template <class T>
void sample_with_replacement(backend::PhiloxState philox, const at::Tensor& rows, at::Tensor& out) {
  const auto distributions = rows.size(0);
  const auto categories = rows.size(1);
  const auto samples = out.size(-1);
  const auto grid_rows = rows_of_grid(distributions);
  const auto row_threads =
      (samples + kThreadsPerRowBlock - 1) / kThreadsPerRowBlock * kThreadsPerRowBlock;
  const auto drawn = out.is_contiguous() ? out : at::empty(out.sizes(), at::kLong);
  const auto* probabilities = static_cast<const T*>(rows.const_data_ptr());
  auto* const to = drawn.mutable_data_ptr<std::int64_t>();

  const auto sample_rows = [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> ends(static_cast<std::size_t>(categories));
    for (auto d = begin; d < end; ++d) {
      find_ends<T>({probabilities + d * categories, ends.size()}, ends);
      const backend::PhiloxState call{
          philox.seed, philox.offset + 4 * static_cast<std::uint64_t>(d / grid_rows)};
      at::parallel_for(0, samples, kLeastPerThread, [&](std::int64_t first, std::int64_t last) {
        draw_samples<T>(call, d % grid_rows * row_threads, ends, first,
                        {to + d * samples + first, to + d * samples + last});
      });
    }
  };
  // Threads share the rows, or the samples of each row if there are too few rows.
  const bool few = distributions < at::get_num_threads();
  const auto rows_per_thread = std::max<std::int64_t>(1, kLeastPerThread / (categories + samples));
  at::parallel_for(0, distributions, few ? distributions : rows_per_thread, sample_rows);
  if (!drawn.is_same(out)) out.copy_(drawn);
}

void with_replacement(backend::PhiloxState philox, const at::Tensor& probabilities,
                      at::Tensor& out) {
  const bool wide = probabilities.scalar_type() == at::kDouble;
  const auto rows = probabilities.to(wide ? at::kDouble : at::kFloat)
                        .contiguous()
                        .view({-1, probabilities.size(-1)});
  if (wide) return sample_with_replacement<double>(philox, rows, out);
  sample_with_replacement<float>(philox, rows, out);
}

// A probe's zeros are not a distribution; the dtypes are checked at the call.
const FunctionKernel<&without_replacement> without_replacement_kernel{"aten::multinomial",
                                                                      ArgumentSupport::kAll};
const FunctionKernel<&with_replacement> with_replacement_kernel{"aten::multinomial.out",
                                                                ArgumentSupport::kAll};

/// \param self [categories] or [distributions, categories], floating; rows need not sum to 1.
/// \return int64 [samples] or [distributions, samples].
at::Tensor& multinomial_out(const at::Tensor& self, std::int64_t samples, bool replacement,
                            Generator generator, at::Tensor& out) {
  SameDevice same("multinomial");
  same.check(self);
  same.check(out);
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "multinomial expects Long tensor out, got: ", out.scalar_type());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "multinomial",
                                  [] {});
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  const auto categories = self.size(-1);
  TORCH_CHECK(replacement || samples <= categories,
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(categories <= std::int64_t{1} << 24, "number of categories cannot exceed 2^24");
  c10::SmallVector<std::int64_t, 2> sizes(self.sizes().begin(), self.sizes().end());
  sizes.back() = samples;
  at::assert_no_internal_overlap(out);
  out.resize_(sizes);
  if (out.numel() == 0) return out;
  TORCH_CHECK(categories > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
  if (!replacement || samples == 1) {
    without_replacement_kernel.launch(
        self.device(), take_numbers(generator, self, unroll_of_reals(self)), self, out);
  } else {
    const auto distributions = self.dim() == 1 ? 1 : self.size(0);
    const auto numbers = static_cast<std::uint64_t>(4 * calls_per_thread(distributions));
    with_replacement_kernel.launch(self.device(), take_numbers(generator, self.device(), numbers),
                                   self, out);
  }
  return out;
}

at::Tensor multinomial(const at::Tensor& self, std::int64_t samples, bool replacement,
                       Generator generator) {
  expect_our_device(self.device());
  auto out = empty_on(self.device(), {0}, at::kLong);
  return multinomial_out(self, samples, replacement, std::move(generator), out);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("multinomial", TORCH_FN(multinomial));
  m.impl("multinomial.out", TORCH_FN(multinomial_out));
}

}  // namespace openreg::ops
