#include "ops/wire/argument_writer.h"

#include <ATen/Context.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "backend/shared_memory.h"
#include "base/processor.h"
#include "base/round_up.h"
#include "ops/wire/extent.h"
#include "ops/wire/same_device.h"

namespace openreg::ops {

namespace {

constexpr std::uint8_t written_flag(Access access) {
  return access == Access::kWrite ? std::uint8_t{kWritten} : std::uint8_t{0};
}

/// The address of a storage's data. A storage that shares its memory until it is written (a lazy
/// clone) gets its own memory here, copied in stream order before the command that writes.
const void* memory_of(const c10::Storage& storage, Access access) {
  if (access == Access::kWrite) return storage.mutable_data();
  backend::note_read(storage);
  return storage.data();
}

template <class Buffer>
std::size_t append(Buffer& buffer, const void* data, std::size_t count, std::size_t alignment = 8) {
  const auto at = round_up(buffer.size(), alignment);
  buffer.resize_for_overwrite(at + count);
  if (count != 0) std::memcpy(buffer.data() + at, data, count);
  return at;
}

/// The settings of the process and the thread that affect what a call does: the dtypes of results,
/// the algorithm, whether it is refused, how often it warns.
std::uint64_t environment() {
  const auto& context = at::globalContext();
  return static_cast<std::uint64_t>(c10::get_default_dtype_as_scalartype()) |
         static_cast<std::uint64_t>(context.deterministicAlgorithms()) << 8 |
         static_cast<std::uint64_t>(context.deterministicAlgorithmsWarnOnly()) << 9 |
         static_cast<std::uint64_t>(context.userEnabledMkldnn()) << 10 |
         static_cast<std::uint64_t>(c10::WarningUtils::get_warnAlways()) << 11;
}

}  // namespace

bool ArgumentWriter::write_known(const at::TensorBase& tensor, Access access) {
  if (!tensor.defined()) {
    ++place_.element;
    encode<std::int32_t>(kUndefined);
    add_signature_word(0);
    return true;
  }
  const auto i = tensor_index_.find(tensors_, tensor.unsafeGetTensorImpl());
  if (!i) return false;
  ++place_.element;
  add_signature_word(~*i);
  if (access == Access::kWrite) {
    is_in_place_ = true;
    overlaps_itself_ |= at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
    auto& known = shape(tensors_[*i]);
    known.flags |= kWritten;
    auto& storage = storages_[known.storage];
    storage.record.pointer = reinterpret_cast<std::uint64_t>(memory_of(tensor.storage(), access));
    storage.written = true;
    shares_written_memory_ |= storage.tensors > 1;
  }
  encode(static_cast<std::int32_t>(*i));
  return true;
}

std::uint32_t ArgumentWriter::add_storage(const c10::Storage& storage, Access access) {
  const void* const identity = storage.unsafeGetStorageImpl();
  const auto pointer = reinterpret_cast<std::uint64_t>(memory_of(storage, access));
  const bool written = access == Access::kWrite;
  if (const auto i = storage_index_.find(storages_, identity)) {
    auto& known = storages_[*i];
    known.record = {pointer, storage.nbytes()};  // an output may have been resized since
    known.written |= written;
    ++known.tensors;
    shares_written_memory_ |= known.written;
    return static_cast<std::uint32_t>(*i);
  }
  storages_.push_back({identity, {pointer, storage.nbytes()}, written});
  return static_cast<std::uint32_t>(storages_.size() - 1);
}

void ArgumentWriter::add_tensor(const at::TensorBase& tensor, std::uint32_t storage,
                                std::uint8_t flags) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  const auto keys = impl->key_set();
  if (keys.has(c10::DispatchKey::Conjugate)) flags |= kConj;
  if (keys.has(c10::DispatchKey::Negative)) flags |= kNeg;
  if (impl->is_wrapped_number()) flags |= kWrappedNumber;
  if ((flags & kWritten) && !impl->is_non_overlapping_and_dense())
    overlaps_itself_ |= at::has_internal_overlap(impl) == at::MemOverlap::Yes;
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  const auto dim = sizes.size();
  TORCH_CHECK(dim <= UINT16_MAX, "openreg: a tensor has too many dimensions (got ", dim,
              ", expected 65535 or fewer)");
  const auto at = words_.size();
  words_.resize_for_overwrite(at + 1 + 2 * dim);
  const TensorShape shape{static_cast<std::uint8_t>(c10::typeMetaToScalarType(impl->dtype())),
                          flags, static_cast<std::uint16_t>(dim), storage};
  std::memcpy(&words_[at], &shape, sizeof(shape));
  auto* const geometry = words_.data() + at + 1;
  for (std::size_t i = 0; i < dim; ++i) {
    geometry[i] = static_cast<std::uint64_t>(sizes[i]);
    geometry[dim + i] = static_cast<std::uint64_t>(strides[i]);
  }
  const auto itemsize = impl->itemsize();
  bytes_touched_ += static_cast<std::size_t>(impl->numel()) * itemsize;
  const std::int64_t offset = (flags & kPayload) ? 0 : impl->storage_offset();
  const auto extent = extent_of(*impl);
  const auto end = extent == 0 ? 0 : static_cast<std::size_t>(offset + extent) * itemsize;
  tensors_.push_back({impl, {offset, storage, static_cast<std::uint32_t>(at)}, end, place_});
  ++place_.element;
  encode(static_cast<std::int32_t>(tensors_.size() - 1));
}

void ArgumentWriter::add_payload_tensor(const at::TensorBase& cpu_tensor) {
  expect_memory(cpu_tensor);
  const std::size_t nbytes = cpu_tensor.nbytes();
  const auto at = append(payload_, nbytes ? cpu_tensor.const_data_ptr() : nullptr, nbytes, 16);
  // The identity of the place in the payload is its number, which never equals the address of a
  // StorageImpl.
  storages_.push_back({reinterpret_cast<const void*>(storages_.size() + 1), {at, nbytes}, false});
  add_tensor(cpu_tensor, static_cast<std::uint32_t>(storages_.size() - 1), kPayload);
}

// The value becomes part of the signature as that of a number does, so that a value which the
// kernel refuses is refused at the call.
void ArgumentWriter::add_number_to_signature(const at::TensorBase& cpu_tensor) {
  const void* const data = cpu_tensor.const_data_ptr();
  switch (cpu_tensor.scalar_type()) {
    case at::kDouble:
      numbers_.emplace_back(*static_cast<const double*>(data));
      return;
    case at::kFloat:
      numbers_.emplace_back(*static_cast<const float*>(data));
      return;
    case at::kLong:
      numbers_.emplace_back(*static_cast<const std::int64_t*>(data));
      return;
    case at::kInt:
      numbers_.emplace_back(*static_cast<const std::int32_t*>(data));
      return;
    default: {
      std::uint64_t bits[2] = {};
      std::memcpy(bits, data, std::min(cpu_tensor.itemsize(), sizeof(bits)));
      for (const auto word : bits) add_signature_word(word);
    }
  }
}

void ArgumentWriter::tensor(const at::TensorBase& tensor, Access access) {
  if (write_known(tensor, access)) return;
  if (tensor.device() == device_) {
    add_tensor(tensor, add_storage(tensor.storage(), access), written_flag(access));
  } else if (access == Access::kRead && tensor.is_cpu() && tensor.dim() == 0) {
    add_payload_tensor(tensor);
    add_number_to_signature(tensor);
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

void ArgumentWriter::number(const c10::Scalar& v) {
  add_signature_word(static_cast<std::uint64_t>(v.type()));
  encode(v.type());
  if (v.isComplex()) {
    encode(v.toComplexDouble());
  } else if (v.isFloatingPoint()) {
    encode(v.toDouble());
  } else if (v.type() == at::kUInt64) {
    encode(v.toUInt64());
  } else {
    encode(v.toLong());
  }
  add_kind_to_signature(v);
}

// Once, at the end, when all dtypes of the call are known.
void ArgumentWriter::add_numbers_to_signature() {
  if (has_numbers_) return;
  has_numbers_ = true;
  add_signature_word(environment());
  if (numbers_.empty()) return;
  auto greatest = Number::greatest(c10::get_default_dtype_as_scalartype());
  for (const auto& tensor : tensors_) {
    const auto& known = shape(tensor);
    if (!(known.flags & kPayload)) greatest = std::min(greatest, Number::greatest(known.type()));
  }
  for (const auto& number : numbers_)
    number.add_to_signature(greatest, [this](std::uint64_t word) { add_signature_word(word); });
}

SignatureView ArgumentWriter::signature(const void* whom) {
  if (!has_numbers_) {
    add_numbers_to_signature();
    // Then it matters which elements coincide, but not where in the storage they are.
    if (shares_written_memory_) {
      c10::SmallVector<std::int64_t, 6> first(storages_.size(), -1);  // bytes
      for (const auto& tensor : tensors_) {
        const auto begin = tensor.record.storage_offset *
                           static_cast<std::int64_t>(c10::elementSize(shape(tensor).type()));
        if (first[tensor.record.storage] < 0) first[tensor.record.storage] = begin;
        add_signature_word(static_cast<std::uint64_t>(begin - first[tensor.record.storage]));
      }
    }
  }
  const auto view =
      make_signature(whom, {words_.data(), words_.size()}, {integers_.data(), integers_.size()});
  signature_ = static_cast<std::uint16_t>(view.hash);
  return view;
}

// The words without sizes and strides.
SignatureView ArgumentWriter::signature(const void* whom, SignatureLevel level,
                                        c10::SmallVectorImpl<std::uint64_t>& words) {
  add_numbers_to_signature();
  c10::SmallVector<std::uint64_t, 16> sizes;  // the sizes signed so far, each once
  auto next = tensors_.begin();
  for (std::size_t i = 0; i < words_.size();) {
    if (next == tensors_.end() || next->record.word != i) {
      words.push_back(words_[i++]);
      continue;
    }
    TensorShape known = shape(*next);
    known.storage = 0;
    known.flags &= static_cast<std::uint8_t>(~kWritten);
    words.push_back(std::bit_cast<std::uint64_t>(known));
    for (std::size_t k = 1; level == SignatureLevel::kEqualSizes && k <= known.dim; ++k) {
      const auto size = words_[i + k];
      if (size <= 1) {
        words.push_back(size);
        continue;
      }
      // The number of the first equal size.
      const auto* const found = std::find(sizes.begin(), sizes.end(), size);
      words.push_back(static_cast<std::uint64_t>(2 + (found - sizes.begin())));
      if (found == sizes.end()) sizes.push_back(size);
    }
    i += 1 + 2 * std::size_t{known.dim};
    ++next;
  }
  std::span<const std::uint64_t> integers;
  if (level != SignatureLevel::kDtypes) integers = {integers_.data(), integers_.size()};
  return make_signature(whom, {words.data(), words.size()}, integers);
}

std::span<const std::byte> ArgumentWriter::finish() {
  const auto tensors_at = sizeof(CommandHeader) + storages_.size() * sizeof(StorageRecord);
  const auto words_at = tensors_at + tensors_.size() * sizeof(TensorRecord);
  const auto values_at = words_at + words_.size() * sizeof(std::uint64_t);
  const auto values_end = values_at + values_.size() * sizeof(std::uint64_t);
  const auto payload_at = payload_.empty() ? values_end : round_up(values_end, 16);
  command_.resize_for_overwrite(payload_at + payload_.size());
  auto* const begin = command_.data();
  const CommandHeader header{.storages = static_cast<std::uint32_t>(storages_.size()),
                             .tensors = static_cast<std::uint32_t>(tensors_.size()),
                             .words_at = static_cast<std::uint32_t>(words_at),
                             .values_at = static_cast<std::uint32_t>(values_at),
                             .payload_at = static_cast<std::uint32_t>(payload_at),
                             .flush_denormals = flush_denormals(),
                             .drops_warnings = drops_warnings_,
                             .signature = signature_};
  std::memcpy(begin, &header, sizeof(header));
  auto* storage = begin + sizeof(header);
  for (const auto& each : storages_) {
    std::memcpy(storage, &each.record, sizeof(StorageRecord));
    storage += sizeof(StorageRecord);
  }
  auto* tensor = begin + tensors_at;
  for (const auto& each : tensors_) {
    const auto nbytes = storages_[each.record.storage].record.nbytes;
    if (each.end > nbytes) [[unlikely]]
      expect_memory(*each.identity, each.record.storage_offset, nbytes);
    std::memcpy(tensor, &each.record, sizeof(TensorRecord));
    tensor += sizeof(TensorRecord);
  }
  std::memcpy(begin + words_at, words_.data(), words_.size() * sizeof(std::uint64_t));
  std::memcpy(begin + values_at, values_.data(), values_.size() * sizeof(std::uint64_t));
  if (!payload_.empty()) {
    std::memset(begin + values_end, 0, payload_at - values_end);
    std::memcpy(begin + payload_at, payload_.data(), payload_.size());
  }
  return {begin, command_.size()};
}

void ArgumentWriter::drop_warnings() noexcept {
  drops_warnings_ = true;
  if (!command_.empty()) reinterpret_cast<CommandHeader*>(command_.data())->drops_warnings = true;
}

bool ArgumentWriter::written_memory_overlaps() const {
  if (overlaps_itself_) return true;
  if (!shares_written_memory_) return false;
  for (const auto& written : tensors_) {
    if (!(shape(written).flags & kWritten)) continue;
    for (const auto& other : tensors_) {
      if (&other == &written || other.record.storage != written.record.storage) continue;
      const auto status = at::get_overlap_status(written.identity, other.identity);
      if (status == at::MemOverlapStatus::Full || status == at::MemOverlapStatus::Partial)
        return true;
    }
  }
  return false;
}

}  // namespace openreg::ops
