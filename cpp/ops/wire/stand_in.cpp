#include "ops/wire/stand_in.h"

#include <c10/core/alignment.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <set>

#include "ops/wire/command_layout.h"
#include "ops/wire/extent.h"
#include "ops/wire/guarded_memory.h"

namespace openreg::ops {

namespace {

constexpr std::size_t kLargestElement = 16;
constexpr std::size_t kMostBeyond = std::size_t{64} << 10;  // bytes; enough for small sizes

// The alignment of the CPU's and the device's memory: kernels load vectors with instructions that
// need it.
constexpr std::size_t kAlignment = c10::gAlignment;

/// The bytes from the beginning of its storage to the end of a tensor's last element; 0 if it has
/// no element, wherever its offset is.
std::size_t end_of(const CommandView& view, const TensorRecord& tensor) {
  const auto& shape = view.shape(tensor);
  const auto extent = extent_of({view.sizes(tensor), shape.dim}, {view.strides(tensor), shape.dim});
  if (extent == 0) return 0;
  return bytes_of(static_cast<std::size_t>(tensor.storage_offset + extent), shape.type());
}

/// The copy belongs to the stand-in, which may change it.
template <class T>
T& own(const T& part) {
  return const_cast<T&>(part);
}

}  // namespace

StandIn::StandIn(std::span<const std::byte> command, Kind kind, Elements elements)
    : kind_(kind), command_(command.begin(), command.end()) {
  if (kind == Kind::kShrunk) shrink();
  give_memory();
  if (elements == Elements::kOnes) fill_with_ones();
}

void StandIn::shrink() {
  const CommandView view(command_);
  std::set<std::int64_t> large;  // the sizes above 1; the least becomes 2, the next one 3
  for (const auto& tensor : view.tensors()) {
    // ATen has few kernels for these, and chooses them by size.
    if (c10::isFloat8Type(view.shape(tensor).type())) return;
    const auto* sizes = view.sizes(tensor);
    std::copy_if(sizes, sizes + view.shape(tensor).dim, std::inserter(large, large.end()),
                 [](std::int64_t size) { return size > 1; });
  }
  for (const auto& tensor : view.tensors()) {
    if (view.shape(tensor).flags & kPayload) continue;
    own(tensor).storage_offset = 0;
    auto* sizes = const_cast<std::int64_t*>(view.sizes(tensor));
    for (std::size_t i = 0; i < view.shape(tensor).dim; ++i) {
      if (sizes[i] > 1) sizes[i] = 2 + std::distance(large.begin(), large.find(sizes[i]));
    }
  }
}

// Allocates as much memory as the tensors need. The storages have that size too: a kernel that
// changes the shape of an output stays within it, and one that needs more fails. If the storage of
// an output has more in the call, the kernel may use that: a loss computes its mean in the memory
// of the result, which was made as large as its input.
void StandIn::give_memory() {
  const CommandView view(command_);
  std::vector<bool> written(view.header().storages);
  for (const auto& tensor : view.tensors()) {
    if (view.shape(tensor).flags & kWritten) written[tensor.storage] = true;
  }
  const auto stays = [&](const TensorRecord& tensor) {
    return (view.shape(tensor).flags & kPayload) ||
           (kind_ == Kind::kReading && !written[tensor.storage]);
  };
  std::vector<std::size_t> end(view.header().storages);
  std::vector<std::size_t> widest(view.header().storages, 1);
  made_.resize(view.header().storages);
  for (const auto& tensor : view.tensors()) {
    if (stays(tensor)) continue;
    own(view.shape(tensor)).flags |= kPinned;
    made_[tensor.storage] = true;
    end[tensor.storage] = std::max(end[tensor.storage], end_of(view, tensor));
    widest[tensor.storage] =
        std::max(widest[tensor.storage], c10::elementSize(view.shape(tensor).type()));
  }
  for (std::size_t i = 0; i < made_.size(); ++i) {
    if (!made_[i]) continue;
    auto& storage = own(view.storages()[i]);
    const auto beyond = written[i] ? std::min<std::size_t>(storage.nbytes, kMostBeyond) : 0;
    storage.nbytes = std::max(end[i], beyond);
    storage.pointer = make_memory(storage.nbytes, widest[i]);
  }
}

std::uint64_t StandIn::make_memory(std::size_t bytes, std::size_t widest) {
  bytes_ += bytes;
  if (kGuardsStandIns) {
    // Products of 8-bit integers load aligned vectors, other kernels take what views give them.
    memory_.push_back(make_guarded_memory(bytes, widest == 1 ? kAlignment : widest));
    return reinterpret_cast<std::uint64_t>(memory_.back().get());
  }
  // Not aligned_alloc, because pages that calloc() takes from the system are already zero.
  auto* memory = std::calloc(std::max(bytes, kLargestElement) + kAlignment - 1, 1);
  if (memory == nullptr) throw std::bad_alloc();
  memory_.emplace_back(memory, &std::free);
  return (reinterpret_cast<std::uint64_t>(memory) + kAlignment - 1) / kAlignment * kAlignment;
}

// If integers of several widths share a storage, the widest become ones: the others are then zeros
// and ones, and no index is out of range.
void StandIn::fill_with_ones() {
  const CommandView view(command_);
  std::vector<std::size_t> width(made_.size());
  const auto is_filled = [&](const TensorRecord& tensor) {
    return made_[tensor.storage] &&
           c10::isIntegralType(view.shape(tensor).type(), /*includeBool=*/false);
  };
  for (const auto& tensor : view.tensors()) {
    if (!is_filled(tensor)) continue;
    width[tensor.storage] =
        std::max(width[tensor.storage], c10::elementSize(view.shape(tensor).type()));
  }
  for (const auto& tensor : view.tensors()) {
    if (!is_filled(tensor)) continue;
    auto* memory = reinterpret_cast<unsigned char*>(view.storage(tensor).pointer);
    const auto item = c10::elementSize(view.shape(tensor).type());
    if (item != width[tensor.storage]) continue;
    const auto end = end_of(view, tensor);
    for (std::size_t at = 0; at < end; at += item) memory[at] = 1;
  }
}

}  // namespace openreg::ops
