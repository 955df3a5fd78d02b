#include "ops/wire/command_layout.h"

#include <string>

#include "ops/wire/reach.h"
#include "address_space/address_space.h"
#include "base/error.h"

namespace openreg::ops {

namespace {

void expect(bool fits, const char* what) {
  if (!fits)
    throw Error(std::string("openreg: these are not the arguments of a command (") + what + ")");
}

bool is_multiple(std::size_t offset, std::size_t of) { return offset % of == 0; }

/// Whether [begin, begin + length) is part of [0, bytes).
bool is_within(std::uint64_t begin, std::uint64_t length, std::uint64_t bytes) {
  return begin <= bytes && length <= bytes - begin;
}

bool is_dtype(const TensorShape& shape) {
  return shape.dtype < static_cast<std::uint8_t>(c10::ScalarType::NumOptions) &&
         shape.type() != c10::ScalarType::Undefined;
}

/// Whether a tensor's elements lie in a storage of `nbytes`.
bool is_within(const CommandView& command, const TensorRecord& tensor, std::uint64_t nbytes) {
  const auto& shape = command.shape(tensor);
  std::uint64_t elements = 1;
  std::uint64_t last = static_cast<std::uint64_t>(tensor.storage_offset);
  bool overflows = false;
  for (std::size_t i = 0; i < shape.dim; ++i) {
    const auto size = static_cast<std::uint64_t>(command.sizes(tensor)[i]);
    const auto stride = static_cast<std::uint64_t>(command.strides(tensor)[i]);
    std::uint64_t reach = 0;
    overflows |= __builtin_mul_overflow(elements, size, &elements);
    if (size != 0) overflows |= __builtin_mul_overflow(size - 1, stride, &reach);
    overflows |= __builtin_add_overflow(last, reach, &last);
  }
  constexpr std::uint64_t kMost = std::uint64_t{1} << 58;  // their bytes still fit into a number
  return !overflows && last < kMost &&
         (elements == 0 || bytes_of(last + 1, shape.type()) <= nbytes);
}

void expect_tensor(const CommandView& command, const TensorRecord& tensor, std::uint64_t words,
                   std::uint64_t payload) {
  const auto& header = command.header();
  expect(tensor.storage < header.storages, "a tensor without a storage");
  expect(tensor.word < words, "a tensor without a shape");
  const auto& shape = command.shape(tensor);
  expect(is_within(tensor.word, 1 + 2 * std::uint64_t{shape.dim}, words), "a shape beyond the end");
  expect(is_dtype(shape), "an unknown dtype");
  for (std::size_t i = 0; i < shape.dim; ++i)
    expect(command.sizes(tensor)[i] >= 0 && command.strides(tensor)[i] >= 0, "a size below 0");
  const auto& storage = command.storage(tensor);
  expect(tensor.storage_offset >= 0 && is_within(command, tensor, storage.nbytes),
         "a tensor beyond its storage");
  if (shape.flags & kPayload) {
    expect(is_within(storage.pointer, storage.nbytes, payload), "a storage beyond the payload");
  } else if (!(shape.flags & kPinned) && storage.nbytes != 0) {
    const auto& space = AddressSpace::get();
    const auto* const first = reinterpret_cast<const std::byte*>(storage.pointer);
    const int device = space.device_of(first);
    expect(device >= 0 && is_within(storage.pointer - space.window_begin(device), storage.nbytes,
                                    space.window_bytes()),
           "a storage outside the devices' memory");
  }
}

}  // namespace

void expect_layout(std::span<const std::byte> command) {
  expect(command.size() >= sizeof(CommandHeader), "no header");
  const CommandView view(command);
  const auto& header = view.header();
  const auto records = sizeof(CommandHeader) +
                       std::uint64_t{header.storages} * sizeof(StorageRecord) +
                       std::uint64_t{header.tensors} * sizeof(TensorRecord);
  expect(records <= header.words_at && header.words_at <= header.values_at &&
             header.values_at <= header.payload_at && header.payload_at <= command.size(),
         "parts out of order");
  expect(is_multiple(header.words_at, 8) && is_multiple(header.values_at, 8) &&
             is_multiple(header.payload_at, 8),
         "misaligned parts");
  const auto words = (header.values_at - header.words_at) / sizeof(std::int64_t);
  const auto payload = command.size() - header.payload_at;
  for (const auto& tensor : view.tensors()) expect_tensor(view, tensor, words, payload);
}

}  // namespace openreg::ops
