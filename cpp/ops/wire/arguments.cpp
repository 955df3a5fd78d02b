#include "ops/wire/arguments.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/TensorBase.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/neg_ops.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <new>
#include <set>

#include "backend/denormals.h"
#include "ops/wire/same_device.h"
#include "runtime/address_space.h"

namespace openreg::ops {

// Note [Arguments on the wire]
//
//   Header | storages | tensors | values | payload
//
// A tensor is a record that refers to a storage by number; a value area holds, in the order of the
// operator's arguments, plain values, arrays, and references to tensors by number (-1: undefined).
// Every record begins at a multiple of 8, the payload (elements of small CPU tensors) at a multiple
// of 16. There are no owners in it: memory that the host frees after the launch may be reused by
// later commands of the same stream, which run after this one.
namespace {

struct Header {
  std::uint32_t storages;
  std::uint32_t tensors;
  std::uint32_t values_at;
  std::uint32_t payload_at;
  std::uint32_t flush_denormals;  // thread state of the launcher that a kernel's result depends on
  std::uint32_t drops_warnings;
};

struct StorageRecord {
  std::uint64_t pointer;  // device pointer; pinned host pointer; offset in the payload
  std::uint64_t nbytes;
};

struct TensorRecord {  // followed by `dim` sizes and `dim` strides
  std::uint32_t storage;
  std::uint32_t flags;
  std::int16_t dtype;
  std::uint16_t dim;
  std::uint32_t reserved;
  std::int64_t storage_offset;
};

enum TensorFlag : std::uint32_t {
  kWritten = 1,
  kConj = 2,
  kNeg = 4,
  kWrappedNumber = 8,
  kPayload = 16,  // the storage's pointer is an offset in the payload
  kPinned = 32,   // the storage's pointer is a host pointer
};

constexpr std::uint32_t written_flag(Access access) {
  return access == Access::kWrite ? std::uint32_t{kWritten} : 0;
}

constexpr std::int32_t kUndefined = -1;

std::size_t align_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

/// Where a storage's data lies. One that shares its memory until it is written (a lazy clone) gets
/// its own here, copied in the order of the stream, before the command that writes.
const void* memory_of(const c10::Storage& storage, Access access) {
  return access == Access::kWrite ? storage.mutable_data() : storage.data();
}

template <class Buffer>
std::size_t append(Buffer& buffer, const void* data, std::size_t count, std::size_t alignment = 8) {
  const auto at = align_up(buffer.size(), alignment);
  buffer.resize_for_overwrite(at + count);
  if (count != 0) std::memcpy(buffer.data() + at, data, count);
  return at;
}

at::Tensor make_cpu_tensor(const c10::Storage& storage, const TensorRecord& record,
                           const std::int64_t* sizes) {
  auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(static_cast<c10::ScalarType>(record.dtype)));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides({sizes, record.dim}, {sizes + record.dim, record.dim},
                              record.storage_offset);
  if (record.flags & kConj) impl->_set_conj(true);
  if (record.flags & kNeg) impl->_set_neg(true);
  if (record.flags & kWrappedNumber) impl->set_wrapped_number(true);
  return at::Tensor(std::move(tensor));
}

/// Calls `visit(record, sizes, storage record)` for each tensor of a command.
template <class Visit>
void for_each_tensor(std::span<const std::byte> command, Visit&& visit) {
  const auto& header = *reinterpret_cast<const Header*>(command.data());
  const auto* storages = reinterpret_cast<const StorageRecord*>(command.data() + sizeof(Header));
  const auto* next = command.data() + sizeof(Header) + header.storages * sizeof(StorageRecord);
  for (std::uint32_t i = 0; i < header.tensors; ++i) {
    const auto& record = *reinterpret_cast<const TensorRecord*>(next);
    const auto* sizes = reinterpret_cast<const std::int64_t*>(next + sizeof(TensorRecord));
    visit(record, sizes, storages[record.storage]);
    next += sizeof(TensorRecord) + 2 * record.dim * sizeof(std::int64_t);
  }
}

}  // namespace

ArgumentWriter::ArgumentWriter(const char* op, c10::Device device, Detail detail)
    : op_(op), device_(device), detail_(detail) {}

void ArgumentWriter::bytes(const void* data, std::size_t count) { append(values_, data, count); }

bool ArgumentWriter::write_known(const at::TensorBase& tensor, Access access) {
  if (!tensor.defined()) {
    value<std::int32_t>(kUndefined);
    sign(0);
    return true;
  }
  for (std::size_t i = 0; i < tensor_identities_.size(); ++i) {
    if (tensor_identities_[i] != tensor.unsafeGetTensorImpl()) continue;
    sign(~i);
    if (access == Access::kWrite) {
      overlaps_itself_ |= at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
      auto& record = *reinterpret_cast<TensorRecord*>(tensors_.data() + tensor_offsets_[i]);
      record.flags |= kWritten;
      auto& storage = storages_[record.storage];
      storage.pointer = reinterpret_cast<std::uint64_t>(memory_of(tensor.storage(), access));
      storage.written = true;
    }
    value<std::int32_t>(static_cast<std::int32_t>(i));
    return true;
  }
  return false;
}

std::uint32_t ArgumentWriter::add_storage(const c10::Storage& storage, Access access) {
  const void* const identity = storage.unsafeGetStorageImpl();
  const auto pointer = reinterpret_cast<std::uint64_t>(memory_of(storage, access));
  const bool written = access == Access::kWrite;
  for (std::size_t i = 0; i < storages_.size(); ++i) {
    auto& known = storages_[i];
    if (known.identity != identity) continue;
    known.pointer = pointer;
    known.written |= written;
    shares_written_memory_ |= known.written;
    return static_cast<std::uint32_t>(i);
  }
  storages_.push_back({identity, pointer, storage.nbytes(), written});
  return static_cast<std::uint32_t>(storages_.size() - 1);
}

void ArgumentWriter::add_tensor(const at::TensorBase& tensor, std::uint32_t storage,
                                std::uint32_t flags) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (tensor.is_conj()) flags |= kConj;
  if (tensor.is_neg()) flags |= kNeg;
  if ((flags & kWritten) && !tensor.is_non_overlapping_and_dense())
    overlaps_itself_ |= at::has_internal_overlap(impl) == at::MemOverlap::Yes;
  if (impl->is_wrapped_number()) flags |= kWrappedNumber;
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  sign(static_cast<std::uint64_t>(tensor.scalar_type()) << 8 | sizes.size());
  if (detail_ == Detail::kEqualSizes) sign_equal_sizes(sizes);
  if (detail_ == Detail::kShapes) {
    sign(flags & ~written_flag(Access::kWrite));
    for (const auto size : sizes) sign(static_cast<std::uint64_t>(size));
    for (const auto stride : strides) sign(static_cast<std::uint64_t>(stride));
  }
  const TensorRecord record{storage,
                            flags,
                            static_cast<std::int16_t>(tensor.scalar_type()),
                            static_cast<std::uint16_t>(sizes.size()),
                            0,
                            (flags & kPayload) ? 0 : tensor.storage_offset()};
  tensor_offsets_.push_back(append(tensors_, &record, sizeof(record)));
  append(tensors_, sizes.data(), sizes.size() * sizeof(std::int64_t));
  append(tensors_, strides.data(), strides.size() * sizeof(std::int64_t));
  tensor_identities_.push_back(impl);
  value<std::int32_t>(static_cast<std::int32_t>(tensor_identities_.size() - 1));
}

// 0 and 1 as they are; of the others, the number of the first that is equal.
void ArgumentWriter::sign_equal_sizes(at::IntArrayRef sizes) {
  for (const auto size : sizes) {
    if (size <= 1) {
      sign(static_cast<std::uint64_t>(size));
      continue;
    }
    const auto* const known = std::find(sizes_.begin(), sizes_.end(), size);
    sign(static_cast<std::uint64_t>(2 + (known - sizes_.begin())));
    if (known == sizes_.end()) sizes_.push_back(size);
  }
}

void ArgumentWriter::add_payload_tensor(const at::TensorBase& cpu_tensor) {
  const std::size_t nbytes = cpu_tensor.nbytes();
  const auto at = append(payload_, nbytes ? cpu_tensor.const_data_ptr() : nullptr, nbytes, 16);
  // The identity of the place in the payload: its number, which no address of a StorageImpl equals.
  storages_.push_back({reinterpret_cast<const void*>(storages_.size() + 1), at, nbytes, false});
  add_tensor(cpu_tensor, static_cast<std::uint32_t>(storages_.size() - 1), kPayload);
}

void ArgumentWriter::tensor(const at::TensorBase& tensor, Access access) {
  if (write_known(tensor, access)) return;
  if (tensor.device() == device_) {
    tensor_of_any_device(tensor, access);
  } else if (access == Access::kRead && tensor.is_cpu() && tensor.dim() == 0) {
    add_payload_tensor(tensor);
  } else {
    refuse_mixed_devices(op_, device_, tensor.device());
  }
}

void ArgumentWriter::tensor_of_any_device(const at::TensorBase& tensor, Access access) {
  if (write_known(tensor, access)) return;
  add_tensor(tensor, add_storage(tensor.storage(), access), written_flag(access));
}

void ArgumentWriter::inline_tensor(const at::TensorBase& cpu_tensor) {
  TORCH_INTERNAL_ASSERT(cpu_tensor.is_contiguous() && cpu_tensor.nbytes() <= kMaxInlineBytes);
  add_payload_tensor(cpu_tensor);
}

void ArgumentWriter::pinned_tensor(const at::TensorBase& cpu_tensor, Access access) {
  add_tensor(cpu_tensor, add_storage(cpu_tensor.storage(), access), kPinned | written_flag(access));
}

std::span<const std::byte> ArgumentWriter::finish() {
  const auto storages_bytes = storages_.size() * sizeof(StorageRecord);
  const auto values_at = sizeof(Header) + storages_bytes + tensors_.size();
  const auto payload_at = align_up(values_at + values_.size(), 16);
  const Header header{static_cast<std::uint32_t>(storages_.size()),
                      static_cast<std::uint32_t>(tensor_offsets_.size()),
                      static_cast<std::uint32_t>(values_at),
                      static_cast<std::uint32_t>(payload_at),
                      backend::flush_denormals() ? 1U : 0U,
                      drops_warnings_ ? 1U : 0U};
  command_.clear();
  append(command_, &header, sizeof(header));
  for (const auto& storage : storages_) {
    const StorageRecord record{storage.pointer, storage.nbytes};
    append(command_, &record, sizeof(record));
  }
  append(command_, tensors_.data(), tensors_.size());
  append(command_, values_.data(), values_.size());
  append(command_, payload_.data(), payload_.size(), 16);
  return {command_.data(), command_.size()};
}

void ArgumentWriter::drop_warnings() noexcept {
  drops_warnings_ = true;
  if (!command_.empty()) reinterpret_cast<Header*>(command_.data())->drops_warnings = 1;
}

bool ArgumentWriter::written_memory_overlaps() const {
  if (overlaps_itself_) return true;
  if (!shares_written_memory_) return false;
  const auto record = [&](std::size_t i) -> const TensorRecord& {
    return *reinterpret_cast<const TensorRecord*>(tensors_.data() + tensor_offsets_[i]);
  };
  for (std::size_t i = 0; i < tensor_identities_.size(); ++i) {
    if (!(record(i).flags & kWritten)) continue;
    for (std::size_t j = 0; j < tensor_identities_.size(); ++j) {
      if (i == j || record(i).storage != record(j).storage) continue;
      const auto status = at::get_overlap_status(tensor_identities_[i], tensor_identities_[j]);
      if (status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial)
        return true;
    }
  }
  return false;
}

ArgumentReader::ArgumentReader(std::span<const std::byte> command) : command_(command) {
  const auto& header = *reinterpret_cast<const Header*>(command.data());
  next_ = command.data() + header.values_at;
  backend::set_flush_denormals(header.flush_denormals != 0);
  if (header.drops_warnings != 0) warnings_.drop_all();
  const auto* payload = command.data() + header.payload_at;
  const auto& memory = AddressSpace::get();
  const auto* first = reinterpret_cast<const StorageRecord*>(command.data() + sizeof(Header));
  c10::SmallVector<c10::Storage, 6> storages(header.storages);
  for_each_tensor(command, [&](const TensorRecord& record, const std::int64_t* sizes,
                               const StorageRecord& from) {
    auto& storage = storages[&from - first];
    if (!storage) {
      void* data = nullptr;
      if (record.flags & kPayload) {
        data = const_cast<std::byte*>(payload + from.pointer);
      } else if (record.flags & kPinned) {
        data = reinterpret_cast<void*>(from.pointer);
      } else {
        data = memory.aperture(reinterpret_cast<const void*>(from.pointer));
      }
      storage = c10::Storage(c10::Storage::use_byte_size_t(), from.nbytes,
                             c10::DataPtr(data, c10::Device(c10::kCPU)), /*allocator=*/nullptr,
                             /*resizable=*/false);
    }
    tensors_.push_back(make_cpu_tensor(storage, record, sizes));
  });
}

const std::byte* ArgumentReader::take(std::size_t count) {
  const auto* at = next_;
  next_ += align_up(count, 8);
  return at;
}

at::Tensor& ArgumentReader::tensor() {
  const auto index = value<std::int32_t>();
  return index == kUndefined ? undefined_ : tensors_[index];
}

void ArgumentReader::settle_outputs() {
  std::size_t i = 0;
  for_each_tensor(command_,
                  [&](const TensorRecord& record, const std::int64_t* sizes, const StorageRecord&) {
                    auto& tensor = tensors_[i++];
                    if (!(record.flags & kWritten)) return;
                    TORCH_CHECK(tensor.sizes() == at::IntArrayRef(sizes, record.dim),
                                "openreg: a kernel resized its output (got ", tensor.sizes(),
                                ", expected ", at::IntArrayRef(sizes, record.dim), ")");
                    auto* impl = tensor.unsafeGetTensorImpl();
                    if (const bool conj = (record.flags & kConj) != 0; tensor.is_conj() != conj) {
                      impl->_set_conj(conj);
                      at::_ops::conj_physical_::call(tensor);
                    }
                    if (const bool neg = (record.flags & kNeg) != 0; tensor.is_neg() != neg) {
                      impl->_set_neg(neg);
                      at::_ops::neg_::call(tensor);
                    }
                  });
}

CommandOnHost::CommandOnHost(std::span<const std::byte> command, bool shrunk, bool ones)
    : command_(command.begin(), command.end()) {
  constexpr std::size_t kLargestElement = 16;
  std::set<std::int64_t> large;  // the sizes above 1; the least becomes 2, the next one 3
  for_each_tensor(command_,
                  [&](const TensorRecord& record, const std::int64_t* sizes, const StorageRecord&) {
                    // ATen has few kernels for these, and takes them by size.
                    if (c10::isFloat8Type(static_cast<c10::ScalarType>(record.dtype)))
                      shrunk = false;
                    std::copy_if(sizes, sizes + record.dim, std::inserter(large, large.end()),
                                 [](std::int64_t size) { return size > 1; });
                  });
  std::vector<bool> made;  // of each storage
  for_each_tensor(command_, [&](const TensorRecord& record, const std::int64_t* sizes,
                                const StorageRecord& storage) {
    if (record.flags & kPayload) return;
    // They lie in command_, which is ours to change.
    auto& own_record = const_cast<TensorRecord&>(record);
    auto& own_storage = const_cast<StorageRecord&>(storage);
    auto* own_sizes = const_cast<std::int64_t*>(sizes);
    if (shrunk) {
      own_record.storage_offset = 0;
      for (std::uint16_t i = 0; i < record.dim; ++i) {
        if (own_sizes[i] > 1)
          own_sizes[i] = 2 + std::distance(large.begin(), large.find(own_sizes[i]));
      }
    }
    own_record.flags |= kPinned;
    made.resize(std::max<std::size_t>(made.size(), record.storage + 1));
    if (storage.nbytes == 0 || made[record.storage]) return;
    made[record.storage] = true;
    auto* memory = std::calloc(std::max<std::size_t>(storage.nbytes, kLargestElement), 1);
    if (memory == nullptr) throw std::bad_alloc();
    memory_.emplace_back(memory, &std::free);
    own_storage.pointer = reinterpret_cast<std::uint64_t>(memory);
  });
  if (!ones) return;
  for_each_tensor(command_, [&](const TensorRecord& record, const std::int64_t* sizes,
                                const StorageRecord& storage) {
    const auto dtype = static_cast<c10::ScalarType>(record.dtype);
    if ((record.flags & kPayload) || storage.nbytes == 0) return;
    if (!c10::isIntegralType(dtype, /*includeBool=*/false)) return;
    // Up to the last element: what is never touched costs nothing.
    std::int64_t last = record.storage_offset;
    for (std::uint16_t i = 0; i < record.dim; ++i) {
      if (sizes[i] == 0) return;
      last += (sizes[i] - 1) * sizes[record.dim + i];
    }
    auto* memory = reinterpret_cast<unsigned char*>(storage.pointer);
    const auto item = c10::elementSize(dtype);
    for (std::int64_t i = 0; i <= last; ++i) memory[static_cast<std::size_t>(i) * item] = 1;
  });
}

c10::SmallVector<TensorView, 6> tensors_of_command(std::span<const std::byte> command) {
  c10::SmallVector<TensorView, 6> views;
  for_each_tensor(command, [&](const TensorRecord& record, const std::int64_t*,
                               const StorageRecord& storage) {
    if (record.flags & kPayload) return;
    views.push_back({reinterpret_cast<const void*>(storage.pointer), storage.nbytes,
                     static_cast<c10::ScalarType>(record.dtype), (record.flags & kWritten) != 0});
  });
  return views;
}

}  // namespace openreg::ops
