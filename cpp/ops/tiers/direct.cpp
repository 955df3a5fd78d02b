#include "ops/tiers/direct.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

#include "ops/wire/argument_reader.h"

namespace openreg::ops {

namespace {

/// Reads the values of a command, one after another. A command from outside the process may have
/// any values: what it reads is checked as ArgumentReader does.
class Values {
 public:
  explicit Values(const CommandView& command)
      : command_(command), next_(command.values()), end_(command.payload()) {}

  /// Number of values that can still be read.
  std::size_t left() const {
    return static_cast<std::size_t>(end_ - next_) / sizeof(std::uint64_t);
  }
  template <class T>
  T next() {
    T value;
    std::memcpy(&value, next_, sizeof(T));
    next_ += sizeof(std::uint64_t);
    return value;
  }
  void skip(std::size_t values) { next_ += values * sizeof(std::uint64_t); }
  /// Null: there is no such tensor.
  const TensorRecord* tensor() {
    const auto number = next<std::int32_t>();
    const auto tensors = command_.tensors();
    const bool exists = number >= 0 && static_cast<std::size_t>(number) < tensors.size();
    return exists ? &tensors[static_cast<std::size_t>(number)] : nullptr;
  }

 private:
  const CommandView& command_;
  const std::byte* next_;
  const std::byte* end_;
};

bool is_contiguous(const CommandView& command, const TensorRecord& tensor) {
  const auto* const sizes = command.sizes(tensor);
  const auto* const strides = command.strides(tensor);
  std::int64_t stride = 1;
  for (auto dim = std::size_t{command.shape(tensor).dim}; dim-- > 0; stride *= sizes[dim])
    if (sizes[dim] != 1 && strides[dim] != stride) return false;
  return true;
}

std::byte* elements_of(const CommandView& command, const TensorRecord& tensor) {
  const auto itemsize = static_cast<std::int64_t>(c10::elementSize(command.shape(tensor).type()));
  return static_cast<std::byte*>(address_of(command, tensor)) + tensor.storage_offset * itemsize;
}

/// One input of cat: in each of the result's rows it has a piece.
struct Piece {
  const std::byte* from;
  std::size_t bytes;   // of a row
  std::size_t offset;  // in the result's row
};

/// cat(tensors, dim) of contiguous tensors of one dtype and number of dimensions that are small.
bool cat(const CommandView& command) {
  constexpr std::size_t kSmall = 4096;  // bytes of a tensor on average; ATen copies larger ones
  Values values(command);
  if (values.left() == 0) return false;
  const auto count = values.next<std::uint64_t>();
  if (count == 0 || values.left() < 2 || count > values.left() - 2) return false;
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
  const auto per_thread = static_cast<std::int64_t>(std::max<std::size_t>(
      1, (std::size_t{128} << 10) * count / std::max<std::size_t>(1, rows * row_bytes)));
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

BodyTraits::Direct direct_computation(const char* op) {
  return std::string_view(op) == "aten::cat" ? &cat : nullptr;
}

}  // namespace openreg::ops
