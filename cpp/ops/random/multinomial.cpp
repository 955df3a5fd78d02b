#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/topk.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "backend/library.h"
#include "ops/launch/function_kernel.h"
#include "ops/random/random_kernels.h"
#include "ops/tensors/factories.h"

namespace openreg::ops {

namespace {

// A race: category i arrives after a time that is exponential with rate p_i, and the first ones are
// the sample.
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

/// The category whose part `at` is in; never one of probability 0.
template <class T>
std::int64_t find_category(std::span<const T> ends, std::span<const T> probabilities, T at) {
  auto found = std::lower_bound(ends.begin(), ends.end(), at) - ends.begin();
  found = std::min(found, std::ssize(ends) - 1);
  while (found > 0 && probabilities[static_cast<std::size_t>(found)] == 0) --found;
  return found;
}

// CUDA's grid: blocks of 128 threads, one thread for each sample, and a row of them for each
// distribution as far as there are rows. Each sample takes the first number of a call.
constexpr std::int64_t kThreadsPerBlock = 128;
constexpr std::int64_t kMostRows = 65535;
constexpr std::int64_t rows_of_grid(std::int64_t distributions) {
  return std::min(distributions, kMostRows);
}
constexpr std::int64_t calls_per_thread(std::int64_t distributions) {
  return (distributions - 1) / rows_of_grid(distributions) + 1;
}

/// Where the categories' parts of [0, 1] end.
template <class T>
std::vector<T> ends_of(std::span<const T> probabilities) {
  std::vector<T> ends;
  ends.reserve(probabilities.size());
  T sum = 0;
  for (const T p : probabilities) {
    TORCH_CHECK(p >= 0, "invalid multinomial distribution (encountering probability entry < 0)");
    TORCH_CHECK(
        std::isfinite(p),
        "invalid multinomial distribution (encountering probability entry = infinity or NaN)");
    ends.push_back(sum += p);
  }
  TORCH_CHECK(sum > 0, "invalid multinomial distribution (sum of probabilities <= 0)");
  for (T& end : ends) end /= sum;
  return ends;
}

template <class T>
void sample_with_replacement(backend::PhiloxState philox, const at::Tensor& rows, at::Tensor& out) {
  const auto distributions = rows.size(0);
  const auto categories = rows.size(1);
  const auto samples = out.size(-1);
  const auto grid_rows = rows_of_grid(distributions);
  const auto row_threads = (samples + kThreadsPerBlock - 1) / kThreadsPerBlock * kThreadsPerBlock;
  const auto drawn = at::empty(out.sizes(), at::kLong);
  auto* next = drawn.mutable_data_ptr<std::int64_t>();
  for (std::int64_t d = 0; d < distributions; ++d) {
    const std::span row(static_cast<const T*>(rows.const_data_ptr()) + d * categories,
                        static_cast<std::size_t>(categories));
    const auto ends = ends_of(row);
    const auto call = philox.offset / 4 + static_cast<std::uint64_t>(d / grid_rows);
    for (std::int64_t i = 0; i < samples; ++i) {
      const auto thread = static_cast<std::uint64_t>(d % grid_rows * row_threads + i);
      const auto number = philox_4x32_10(philox.seed, call, thread)[0];
      *next++ = find_category<T>(ends, row, static_cast<T>(unit_of<float>(number)));
    }
  }
  out.copy_(drawn);
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

// Zeros, which a trial has, are no distribution; the dtypes are checked at the call.
const FunctionKernel<&without_replacement> without_replacement_kernel{"aten::multinomial",
                                                                      Takes::kAll};
const FunctionKernel<&with_replacement> with_replacement_kernel{
    "aten::multinomial_with_replacement", Takes::kAll};

/// \param self [categories] or [distributions, categories], floating; rows need not sum to 1.
/// \return int64 [samples] or [distributions, samples].
at::Tensor& multinomial_out(const at::Tensor& self, std::int64_t samples, bool replacement,
                            std::optional<at::Generator> generator, at::Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
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
                       std::optional<at::Generator> generator) {
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
