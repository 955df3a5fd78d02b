#include "ops/tiers/raw_kernels.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "ops/launch/vector_clones.h"
#include "ops/tiers/command_values.h"

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

constexpr std::int64_t kMostInInt32 = 1 << 15;  // elements of 16 bits whose sum surely fits

// A bool may have been made of any byte.
[[gnu::always_inline]] inline std::int32_t number(std::int16_t x) { return x; }
[[gnu::always_inline]] inline std::int32_t number(std::int8_t x) { return x; }
[[gnu::always_inline]] inline std::int32_t number(std::uint8_t x) { return x; }
[[gnu::always_inline]] inline std::int32_t number(std::byte x) { return x == std::byte{} ? 0 : 1; }

template <class T>
[[gnu::always_inline]] inline std::int64_t add(const T* elements, std::int64_t count) {
  std::int64_t sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kMostInInt32) {
    const auto end = std::min(begin + kMostInInt32, count);
    std::int32_t part = 0;
    for (auto i = begin; i < end; ++i) part += number(elements[i]);
    sum += part;
  }
  return sum;
}

constexpr std::int64_t kColumns = 1024;  // that are added at a time

/// Adds rows of `stride` elements, of which it reads the first `columns`.
template <class T>
[[gnu::always_inline]] inline void add_rows(const T* elements, std::int64_t rows,
                                            std::int64_t stride, std::int64_t columns,
                                            std::int64_t* sums) {
  std::fill_n(sums, columns, 0);
  for (std::int64_t begin = 0; begin < rows; begin += kMostInInt32) {
    const auto end = std::min(begin + kMostInInt32, rows);
    std::array<std::int32_t, kColumns> parts;
    std::fill_n(parts.begin(), columns, 0);
    for (auto row = begin; row < end; ++row) {
      const auto* const of_row = elements + row * stride;
      for (std::int64_t i = 0; i < columns; ++i)
        parts[static_cast<std::size_t>(i)] += number(of_row[i]);
    }
    for (std::int64_t i = 0; i < columns; ++i) sums[i] += parts[static_cast<std::size_t>(i)];
  }
}

OPENREG_VECTOR_CLONES
std::int64_t sum(c10::ScalarType dtype, const std::byte* elements, std::int64_t count) {
  switch (dtype) {
    case c10::kByte:
      return add(reinterpret_cast<const std::uint8_t*>(elements), count);
    case c10::kChar:
      return add(reinterpret_cast<const std::int8_t*>(elements), count);
    case c10::kShort:
      return add(reinterpret_cast<const std::int16_t*>(elements), count);
    default:  // bool
      return add(elements, count);
  }
}

OPENREG_VECTOR_CLONES
void sum_rows(c10::ScalarType dtype, const std::byte* elements, std::int64_t rows,
              std::int64_t stride, std::int64_t columns, std::int64_t* sums) {
  switch (dtype) {
    case c10::kByte:
      return add_rows(reinterpret_cast<const std::uint8_t*>(elements), rows, stride, columns, sums);
    case c10::kChar:
      return add_rows(reinterpret_cast<const std::int8_t*>(elements), rows, stride, columns, sums);
    case c10::kShort:
      return add_rows(reinterpret_cast<const std::int16_t*>(elements), rows, stride, columns, sums);
    default:  // bool
      return add_rows(elements, rows, stride, columns, sums);
  }
}

/// The input as [outer, count, inner], of which `count`, more than one, is reduced.
struct Reduction {
  std::int64_t outer = 1;
  std::int64_t count = 1;
  std::int64_t inner = 1;
};

constexpr std::int64_t kPerThread = 1 << 16;  // elements

void compute(c10::ScalarType dtype, const std::byte* from, const Reduction& shape,
             std::int64_t* to) {
  const auto itemsize = static_cast<std::int64_t>(c10::elementSize(dtype));
  const auto outer = shape.outer;
  const auto count = shape.count;
  const auto inner = shape.inner;
  if (outer * inner == 1) {
    const auto blocks = (count + kPerThread - 1) / kPerThread;
    std::vector<std::int64_t> sums(static_cast<std::size_t>(blocks));
    at::parallel_for(0, blocks, 1, [&](auto begin, auto end) {
      for (auto i = begin; i < end; ++i)
        sums[static_cast<std::size_t>(i)] = sum(dtype, from + i * kPerThread * itemsize,
                                                std::min(kPerThread, count - i * kPerThread));
    });
    *to = 0;
    for (const auto part : sums) *to += part;
    return;
  }
  if (inner == 1) {
    at::parallel_for(0, outer, std::max<std::int64_t>(1, kPerThread / count),
                     [&](auto begin, auto end) {
                       for (auto i = begin; i < end; ++i)
                         to[i] = sum(dtype, from + i * count * itemsize, count);
                     });
    return;
  }
  const auto tiles = (inner + kColumns - 1) / kColumns;
  const auto elements = count * std::max<std::int64_t>(1, std::min(inner, kColumns));
  at::parallel_for(0, outer * tiles, std::max<std::int64_t>(1, kPerThread / elements),
                   [&](auto begin, auto end) {
                     for (auto i = begin; i < end; ++i) {
                       const auto row = i / tiles;
                       const auto column = i % tiles * kColumns;
                       sum_rows(dtype, from + (row * count * inner + column) * itemsize, count,
                                inner, std::min(kColumns, inner - column),
                                to + row * inner + column);
                     }
                   });
}

bool is_small_integer(c10::ScalarType dtype) {
  return dtype == c10::kBool || dtype == c10::kByte || dtype == c10::kChar || dtype == c10::kShort;
}

/// Null: the reduced dimensions are not adjacent.
std::optional<Reduction> reduction_over(const std::bitset<64>& reduced, const std::int64_t* sizes,
                                        std::size_t dims) {
  Reduction shape;
  for (std::size_t dim = 0; dim < dims; ++dim) {
    if (sizes[dim] == 1) continue;
    if (reduced[dim]) {
      if (shape.inner != 1) return std::nullopt;
      shape.count *= sizes[dim];
    } else {
      (shape.count == 1 ? shape.outer : shape.inner) *= sizes[dim];
    }
  }
  return shape;
}

}  // namespace

bool sum_of_small_integers(const OpKernel&, const CommandView& command) {
  Values values(command);
  const auto* const in = values.tensor();
  std::bitset<64> reduced;
  if (in == nullptr || command.shape(*in).dim > reduced.size()) return false;
  const auto& shape = command.shape(*in);
  if (!is_small_integer(shape.type())) return false;
  if (values.next<std::uint8_t>() != 0) {
    const auto count = values.next<std::uint64_t>();
    for (std::uint64_t i = 0; i < count; ++i) {
      auto dim = values.next<std::int64_t>();
      if (dim < 0) dim += shape.dim;
      if (dim < 0 || dim >= shape.dim) return false;
      reduced.set(static_cast<std::size_t>(dim));
    }
  }
  if (reduced.none()) reduced.set();  // no dimensions are all
  constexpr std::size_t kKeepdimAndDtype = 2;
  values.skip(kKeepdimAndDtype);
  const auto* const out = values.tensor();
  if (out == nullptr || out->storage == in->storage) return false;
  const auto& written = command.shape(*out);
  if (written.type() != c10::kLong || !(written.flags & kWritten) || (written.flags & kNeg) ||
      (shape.flags & kNeg) || !is_contiguous(command, *in) || !is_contiguous(command, *out))
    return false;
  const auto reduction = reduction_over(reduced, command.sizes(*in), shape.dim);
  constexpr std::int64_t kFewColumns = 8;  // ATen is as fast
  if (!reduction || reduction->count <= 1 ||
      (reduction->inner > 1 && reduction->inner < kFewColumns) ||
      command.numel(*out) != static_cast<std::size_t>(reduction->outer * reduction->inner))
    return false;
  compute(shape.type(), elements_of(command, *in), *reduction,
          reinterpret_cast<std::int64_t*>(elements_of(command, *out)));
  return true;
}

BodyTraits::RawKernel raw_kernel(const char* op) {
  const std::string_view name(op);
  if (name == "aten::cat") return &cat;
  if (name == "aten::sum.dim_IntList" || name == "aten::sum.IntList_out")
    return &sum_of_small_integers;
  return nullptr;
}

}  // namespace openreg::ops
