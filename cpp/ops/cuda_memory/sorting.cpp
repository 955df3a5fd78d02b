// Sorting and what is built on it: native/cuda/Sort.cpp, SortStable.cu, TensorTopK.cpp,
// TensorTopK.cu, Randperm.cu, MultinomialKernel.cu, ScanUtils.cuh. The temporary storage of CUB's
// radix sort, which is not known exactly, is taken for its second copy of keys and values.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/cuda_memory/formulas.h"
#include "ops/cuda_memory/gpu.h"

namespace openreg::ops::cuda_memory {

namespace {

constexpr std::int64_t kLong = 8;  // bytes
constexpr std::int64_t kMostInPlace = 4096;

std::int64_t wrapped(std::int64_t dim, const at::Tensor& tensor) {
  return dim < 0 ? dim + std::max<std::int64_t>(tensor.dim(), 1) : dim;
}

std::pair<c10::DataPtr, c10::DataPtr> second_copies(std::int64_t count, std::int64_t key,
                                                    std::int64_t value, Scratch& scratch) {
  return {scratch.bytes(count * key), scratch.bytes(count * value)};
}

/// Of rows of `length` that do not fit into one block of threads.
void allocate_for_large_sort(std::int64_t elements, std::int64_t length, std::int64_t itemsize,
                             Scratch& scratch) {
  constexpr std::int64_t kHuge = 1'000'000;
  constexpr std::int64_t kManySegments = 128;
  const std::int64_t most = std::numeric_limits<int>::max();
  const auto batch = std::min(elements, most) / length * length;
  for (auto left = elements; left > 0; left -= batch) {
    const auto count = std::min(left, batch);
    const auto segments = count / length;
    if (segments == 1 || length >= kHuge) {
      const auto indices = scratch.bytes(length * kLong);
      const auto copies = second_copies(length, itemsize, kLong, scratch);
    } else if (segments < kManySegments) {
      const auto indices = scratch.bytes(count * kLong);  // and segments, as pairs
      const auto sorted = scratch.bytes(count * kLong);
      const auto copies = second_copies(count, itemsize, kLong, scratch);
    } else {
      const auto indices = scratch.bytes(count * kLong);
      const auto copies = second_copies(count, itemsize, kLong, scratch);
    }
  }
}

void allocate_for_sort_along(const at::Tensor& input, std::int64_t dim, Scratch& scratch) {
  if (input.dim() == 0 || input.numel() == 0) return;
  const auto length = input.size(dim);
  if (length <= kMostInPlace) return;
  const auto itemsize = static_cast<std::int64_t>(input.itemsize());
  c10::DataPtr copy, values, indices;
  if (!input.is_non_overlapping_and_dense() || input.stride(dim) != 1) {
    copy = scratch.copy_of(input);
    if (dim != input.dim() - 1) {
      values = scratch.copy_of(input);
      indices = scratch.bytes(input.numel() * kLong);
    }
  }
  allocate_for_large_sort(input.numel(), length, itemsize, scratch);
}

/// Whether several blocks of threads search one row.
bool takes_several_blocks(std::int64_t rows, std::int64_t length) {
  if (rows <= 20) return length >= 20000;
  if (rows <= 40) return length >= 10000;
  if (rows <= 80) return length >= 8000;
  if (rows < 200) return length >= 5000;
  if (rows < 800) return length >= 3000;
  return length >= (rows <= 4000 ? 800 : 400);
}

void allocate_for_search(std::int64_t rows, std::int64_t length, std::int64_t itemsize,
                         Scratch& scratch) {
  constexpr std::int64_t kThreads = 256;
  constexpr std::int64_t kDigits = 256;
  constexpr std::int64_t kBlocksOfMultiprocessor = 65536 / (40 * kThreads);
  const auto places = gpu().multiprocessors * kBlocksOfMultiprocessor * kThreads;
  const auto items =
      std::clamp<std::int64_t>((rows * length + places - 1) / places, 4, 64) * kThreads;
  const auto blocks = rows * ((length + items - 1) / items);
  const auto values = scratch.bytes(rows * itemsize);
  const auto semaphores = scratch.bytes(rows * 4);
  const auto ranks = scratch.bytes(rows * 4);
  const auto desired = scratch.bytes(rows * std::max<std::int64_t>(itemsize, 4));
  const auto counts = scratch.bytes(blocks * kDigits * 2);
  const auto within = scratch.bytes(blocks * 4);
  const auto at_rank = scratch.bytes(blocks * 4);
}

}  // namespace

void allocate_for_sort(const Call& call, Scratch& scratch) {
  if (!call.has("self") || !call.has("dim") || !call.argument("dim").isInt()) return;
  const auto& input = call.tensor("self");
  allocate_for_sort_along(input, wrapped(call.integer("dim"), input), scratch);
}

void allocate_for_topk(const Call& call, Scratch& scratch) {
  constexpr std::int64_t kFewRows = 10;
  constexpr std::int64_t kLongRow = 100'000;
  if (!call.has("self") || !call.has("k")) return;
  const auto& input = call.tensor("self");
  if (input.dim() == 0 || input.numel() == 0 || call.integer("k") == 0) return;
  const auto dim = wrapped(call.integer("dim"), input);
  const auto length = input.size(dim);
  const auto rows = input.numel() / length;
  const auto itemsize = static_cast<std::int64_t>(input.itemsize());
  if (rows <= kFewRows && length >= kLongRow) {
    const auto values = scratch.copy_of(input);
    const auto indices = scratch.bytes(input.numel() * kLong);
    return allocate_for_sort_along(input, dim, scratch);
  }
  if (takes_several_blocks(rows, length)) allocate_for_search(rows, length, itemsize, scratch);
  if (call.flag("sorted") && call.integer("k") > kMostInPlace) {
    const auto found = rows * call.integer("k");
    const auto indices = scratch.bytes(found * kLong);
    const auto values = scratch.bytes(found * itemsize);
    allocate_for_large_sort(found, call.integer("k"), itemsize, scratch);
  }
}

void allocate_for_randperm(const Call& call, Scratch& scratch) {
  if (call.tensors().empty()) return;
  const auto& result = call.tensors().back();
  const auto count = result.numel();
  if (count == 0) return;
  const auto n = static_cast<double>(count);
  const auto bits = std::ceil(std::log2(n - (6 * n * n + 1) / (std::log(0.9) * 12)));
  const std::int64_t key = bits <= 32 ? 4 : kLong;
  // Indices, keys, and sorted keys, with second copies of both; less what our kernel works in.
  const auto itemsize = static_cast<std::int64_t>(result.itemsize());
  const auto bytes = count * (2 * itemsize + 3 * key);
  const auto own = call.tensors().size() > 1 ? static_cast<std::int64_t>(call.tensors()[0].nbytes())
                                             : std::int64_t{0};
  const auto rest = scratch.bytes(std::max<std::int64_t>(bytes - own, 0));
}

void allocate_for_multinomial(const Call& call, Scratch& scratch) {
  if (call.tensors().empty()) return;
  // The probabilities are the first; with replacement there are two copies, and their sums.
  const auto& probabilities = call.tensors()[0];
  const auto original = scratch.copy_of(probabilities);
  const auto normalized = scratch.copy_of(probabilities);
  const auto sums = scratch.copy_of(probabilities);
}

}  // namespace openreg::ops::cuda_memory
