#include "ops/tiers/raw_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

#include "ops/tiers/command_values.h"
#include "ops/tiers/raw_sum.h"

namespace openreg::ops {

namespace {

/// One input of cat: in each of the result's rows it has a piece.
struct Piece {
  const std::byte* from;
  std::size_t bytes;   // of a row
  std::size_t offset;  // in the result's row
};

/// cat(tensors, dim) of contiguous tensors of one dtype and number of dimensions that are small.
bool cat(const OpKernel&, const CommandView& command) {
  constexpr std::size_t kSmall = 4096;  // bytes of a tensor on average; ATen copies larger ones
  Values values(command);
  const auto count = values.next<std::uint64_t>();
  if (count == 0) return false;
  Values inputs = values;
  values.skip(count);
  auto dim = values.next<std::int64_t>();
  const auto* const written = values.tensor();
  if (written == nullptr) return false;
  const auto& out = *written;
  const auto& shape = command.shape(out);
  if (!(shape.flags & kWritten) || (shape.flags & (kConj | kNeg)) || !is_contiguous(command, out))
    return false;
  if (dim < 0) dim += shape.dim;
  if (dim < 0 || dim >= shape.dim) return false;
  const auto itemsize = c10::elementSize(shape.type());
  if (command.numel(out) * itemsize > count * kSmall) return false;
  const auto* const sizes = command.sizes(out);
  const auto product = [](const std::int64_t* begin, const std::int64_t* end) {
    return std::accumulate(begin, end, std::size_t{1},
                           [](auto n, auto size) { return n * static_cast<std::size_t>(size); });
  };
  const auto rows = product(sizes, sizes + dim);
  const auto row_bytes = product(sizes + dim, sizes + shape.dim) * itemsize;

  std::vector<Piece> pieces;
  pieces.reserve(count);
  std::size_t offset = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto* const next = inputs.tensor();
    if (next == nullptr) return false;
    const auto& input = *next;
    const auto& other = command.shape(input);
    if (other.dim != shape.dim || other.dtype != shape.dtype || input.storage == out.storage ||
        (other.flags & (kConj | kNeg)) || !is_contiguous(command, input))
      return false;
    const auto* const own = command.sizes(input);
    const auto bytes = product(own + dim, own + other.dim) * itemsize;
    if (!std::equal(own, own + dim, sizes)) return false;
    pieces.push_back({elements_of(command, input), bytes, offset});
    offset += bytes;
  }
  if (offset != row_bytes) return false;
  if (rows * row_bytes == 0) return true;
  auto* const to = elements_of(command, out);
  const auto per_thread = static_cast<std::int64_t>(
      std::max<std::size_t>(1, (std::size_t{128} << 10) * count / (rows * row_bytes)));
  at::parallel_for(0, static_cast<std::int64_t>(count), per_thread, [&](auto begin, auto end) {
    for (auto i = begin; i < end; ++i) {
      const auto& [from, bytes, at] = pieces[static_cast<std::size_t>(i)];
      for (std::size_t row = 0; row < rows; ++row)
        std::memcpy(to + row * row_bytes + at, from + row * bytes, bytes);
    }
  });
  return true;
}

}  // namespace

BodyTraits::RawKernel raw_kernel(const char* op) {
  const std::string_view name(op);
  if (name == "aten::cat") return &cat;
  if (name == "aten::sum.dim_IntList" || name == "aten::sum.IntList_out")
    return &sum_of_small_integers;
  return nullptr;
}

}  // namespace openreg::ops
