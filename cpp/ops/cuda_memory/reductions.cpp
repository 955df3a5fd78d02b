// Reductions: buffers for partial results of blocks of threads, where several blocks share an
// output (native/cuda/Reduce.cuh).
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bitset>
#include <string_view>
#include <vector>

#include "base/words.h"
#include "ops/cuda_memory/formulas.h"
#include "ops/cuda_memory/gpu.h"

namespace openreg::ops::cuda_memory {

namespace {

using Mask = std::bitset<64>;  // of the dimensions that are reduced

std::int64_t quotient_up(std::int64_t number, std::int64_t by) { return (number + by - 1) / by; }

std::int64_t power_of_two_below(std::int64_t number) {
  std::int64_t power = 1;
  while (2 * power <= number) power *= 2;
  return power;
}

Mask reduced_dims(const Call& call, std::int64_t rank) {
  Mask mask;
  const auto add = [&](std::int64_t dim) {
    mask.set(static_cast<std::size_t>(dim < 0 ? dim + rank : dim));
  };
  if (call.has("dim")) {
    const auto& dims = call.argument("dim");
    if (dims.isInt()) {
      add(dims.toInt());
    } else if (dims.isIntList()) {
      for (const auto dim : dims.toIntVector()) add(dim);
    }
  }
  if (mask.none())
    for (std::int64_t dim = 0; dim < rank; ++dim) add(dim);
  return mask;
}

/// The iterator that CUDA's kernel gets. It reads no elements.
at::TensorIterator iterator_over(const at::Tensor& input, const at::Tensor& result,
                                 const Mask& mask) {
  std::vector<std::int64_t> sizes, strides;
  const bool keeps = result.dim() == input.dim();
  std::int64_t of_result = 0;
  for (std::int64_t dim = 0; dim < input.dim(); ++dim) {
    const bool reduced = mask.test(static_cast<std::size_t>(dim));
    sizes.push_back(reduced ? 1 : input.size(dim));
    strides.push_back(reduced ? 0 : result.stride(of_result));
    if (keeps || !reduced) ++of_result;
  }
  // Of the input's dtype, so that nothing is converted.
  auto output = at::from_blob(input.data_ptr(), sizes, strides, input.options());
  return at::TensorIterator::reduce_op(output, input);
}

/// How CUDA divides a reduction among its threads.
class Division {
 public:
  Division(const at::TensorIteratorBase& iter, std::int64_t partial_bytes, std::int64_t unroll)
      : partial_bytes_(partial_bytes), outputs_(iter.num_output_elements()) {
    const auto inputs = iter.numel() / outputs_;
    const auto itemsize = static_cast<std::int64_t>(iter.element_size(iter.ntensors() - 1));
    const auto strides = iter.strides(iter.ntensors() - 1);
    const auto reduced = iter.num_reduce_dims();
    reduces_fastest_ = iter.ndim() == 0 || reduced == iter.ndim() ||
                       strides[0] < strides[static_cast<std::size_t>(reduced)];
    std::int64_t x = 1, y = 1, stride = itemsize;
    if (iter.ndim() > 0) {
      x = reduces_fastest_ ? inputs : outputs_;
      y = reduces_fastest_ ? outputs_ : inputs;
      stride = strides[reduces_fastest_ ? 0 : static_cast<std::size_t>(reduced)];
    }
    if (stride == itemsize) {
      constexpr std::int64_t kLeast = 128;
      if (reduces_fastest_ && x >= kLeast && reduced == 1) {
        x /= unroll;
      } else if (!reduces_fastest_) {
        vector_ = vector_of_outputs(iter, itemsize);
        x /= vector_;
      }
    }
    choose_block(x, y, iter.dtype(iter.ntensors() - 1) == at::kComplexDouble ? 256 : 512);
    divide(inputs);
  }

  bool is_global() const { return blocks_per_output_ > 1; }
  std::int64_t buffer_bytes() const {
    const auto bytes = partial_bytes_ * outputs_ * blocks_per_output_;
    return reduces_fastest_ ? bytes : bytes * width_ * vector_;
  }
  std::int64_t semaphore_bytes() const { return grid() * 4; }

 private:
  static std::int64_t vector_of_outputs(const at::TensorIteratorBase& iter, std::int64_t itemsize) {
    std::int64_t vector = 4;
    const auto fit = [&](std::uint64_t number) {
      while (number % static_cast<std::uint64_t>(vector) != 0) vector /= 2;
    };
    const auto input = iter.ntensors() - 1;
    fit(reinterpret_cast<std::uintptr_t>(iter.data_ptr(input)) /
        static_cast<std::uint64_t>(itemsize));
    const auto first = static_cast<std::size_t>(iter.num_reduce_dims());
    fit(static_cast<std::uint64_t>(iter.shape()[first]));
    const auto strides = iter.strides(input);
    for (std::size_t dim = 0; dim < strides.size(); ++dim)
      if (dim != first) fit(static_cast<std::uint64_t>(strides[dim] / itemsize));
    return vector;
  }

  void choose_block(std::int64_t x, std::int64_t y, std::int64_t most) {
    constexpr std::int64_t kWarp = 32;
    most /= vector_;
    const auto fitted = [&](std::int64_t n) { return n < most ? power_of_two_below(n) : most; };
    const auto columns = fitted(x);
    width_ = std::min(columns, kWarp);
    height_ = std::min(fitted(y), most / width_);
    width_ = std::min(columns, most / height_);
  }

  std::int64_t grid() const { return quotient_up(outputs_ / vector_, output_step_); }

  void divide(std::int64_t inputs) {
    constexpr std::int64_t kFew = 16;
    constexpr std::int64_t kMany = 256;  // values for each thread
    std::int64_t input_step = 1;
    (reduces_fastest_ ? input_step : output_step_) *= width_;
    const bool splits_rows = quotient_up(inputs, input_step) >= std::min(height_ * kFew, kMany);
    (splits_rows ? input_step : output_step_) *= height_;
    const auto values = quotient_up(inputs, input_step);
    const auto& on = gpu();
    const auto places = on.multiprocessors * (on.threads_per_multiprocessor / (width_ * height_));
    if (!splits_rows || values < kMany || grid() > places) return;
    const auto to_fill = std::min(quotient_up(places, grid()), quotient_up(values, kFew));
    blocks_per_output_ = std::max(to_fill, quotient_up(values, kMany));
  }

  std::int64_t partial_bytes_;
  std::int64_t outputs_;
  bool reduces_fastest_ = true;
  std::int64_t vector_ = 1;
  std::int64_t width_ = 1, height_ = 1;
  std::int64_t output_step_ = 1;
  std::int64_t blocks_per_output_ = 1;
};

bool is_one_of(std::string_view names, std::string_view name) {
  return any_word(names, [&](std::string_view each) { return each == name; });
}

std::int64_t accumulated_bytes(at::ScalarType dtype) {
  return static_cast<std::int64_t>(c10::elementSize(at::toOpMathType(dtype)));
}

/// Of what a thread accumulates.
std::int64_t partial_bytes_of(std::string_view op, at::ScalarType dtype) {
  const auto size = static_cast<std::int64_t>(c10::elementSize(dtype));
  if (is_one_of("argmax argmin max min median", op)) return 16;  // a value and its index
  if (is_one_of("var std var_mean std_mean", op)) return size == 8 ? 32 : 16;
  if (is_one_of("amax amin any all", op)) return op.starts_with('a') && size == 1 ? 1 : size;
  if (op == "aminmax") return 2 * size;
  return accumulated_bytes(dtype);
}

/// Below 32 bits of offsets the reduction is one; above it is divided into several.
void allocate_partial_results(const at::TensorIteratorBase& iter, std::string_view op,
                              Scratch& scratch) {
  const auto dtype = iter.dtype(iter.ntensors() - 1);
  if (!iter.can_use_32bit_indexing()) {
    for (auto& part : iter.with_32bit_indexing()) allocate_partial_results(part, op, scratch);
    return;
  }
  const std::int64_t unroll = is_one_of("var std var_mean std_mean", op) ? 2 : 4;
  const Division division(iter, partial_bytes_of(op, dtype), unroll);
  if (!division.is_global()) return;
  const auto buffer = scratch.bytes(division.buffer_bytes());
  const auto semaphores = scratch.bytes(division.semaphore_bytes());
}

}  // namespace

void allocate_for_reduction_of(const at::Tensor& input, const at::Tensor& result,
                               at::IntArrayRef dims, std::string_view op, Scratch& scratch) {
  if (input.numel() == 0 || result.numel() == 0) return;
  Mask mask;
  for (const auto dim : dims) mask.set(static_cast<std::size_t>(dim));
  auto iter = iterator_over(input, result, mask);
  c10::DataPtr accumulated;
  const auto dtype = input.scalar_type();
  const bool in_wider = dtype == at::kHalf || dtype == at::kBFloat16 || dtype == at::kComplexHalf;
  if (in_wider && result.scalar_type() == dtype && !iter.can_use_32bit_indexing())
    accumulated = scratch.bytes(result.numel() * accumulated_bytes(dtype));
  allocate_partial_results(iter, op, scratch);
}

void allocate_for_reduction(const Call& call, Scratch& scratch) {
  if (call.results().empty() || !call.has("self")) return;
  auto input = call.tensor("self");
  const auto& result = call.results()[0];
  const auto op = call.base_name();
  // Integers are added up in a copy of the result's dtype.
  c10::DataPtr converted;
  if (is_one_of("sum prod mean nansum", op) && input.scalar_type() != result.scalar_type() &&
      !(input.itemsize() == 2 && result.scalar_type() == at::kFloat)) {
    converted = scratch.elements(input.numel(), result.scalar_type());
    input = at::from_blob(input.data_ptr(), input.sizes(), input.strides(),
                          input.options().dtype(result.scalar_type()));
  }
  const auto mask = reduced_dims(call, input.dim());
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = 0; dim < input.dim(); ++dim)
    if (mask.test(static_cast<std::size_t>(dim))) dims.push_back(dim);
  allocate_for_reduction_of(input, result, dims, op, scratch);
}

}  // namespace openreg::ops::cuda_memory
