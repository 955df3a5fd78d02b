#include "ops/wire/argument_reader.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/neg_ops.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "address_space/address_space.h"
#include "memory/pinned/pinned_pages.h"
#include "ops/wire/command_layout.h"
#include "ops/wire/tensor_pool.h"

namespace openreg::ops {

namespace {

/// One tensor for each of the command's, and one storage for each of the command's.
c10::SmallVector<at::Tensor, 6> make_tensors(const CommandView& command) {
  c10::SmallVector<at::Tensor, 6> made;
  made.reserve(command.header().tensors);
  c10::SmallVector<const at::Tensor*, 6> first(command.header().storages);  // of each storage
  for (const auto& record : command.tensors()) {
    const auto& shape = command.shape(record);
    const auto& from = command.storage(record);
    if (const auto* const known = first[record.storage]) {
      made.push_back(at::detail::make_tensor_base<c10::TensorImpl>(
          c10::Storage(known->storage()), c10::DispatchKeySet(c10::DispatchKey::CPU),
          c10::scalarTypeToTypeMeta(shape.type())));
    } else {
      made.push_back(make_tensor_over(address_of(command, record), from.nbytes, shape.type()));
      first[record.storage] = &made.back();
    }
    auto* const impl = made.back().unsafeGetTensorImpl();
    impl->set_sizes_and_strides({command.sizes(record), shape.dim},
                                {command.strides(record), shape.dim}, record.storage_offset);
    if (shape.flags & kConj) impl->_set_conj(true);
    if (shape.flags & kNeg) impl->_set_neg(true);
    if (shape.flags & kWrappedNumber) impl->set_wrapped_number(true);
  }
  return made;
}

/// A copy in float32 or complex64. It has the tensor's strides if that is dense, and else those of
/// a new tensor; where the tensor repeats elements (a stride of 0), so does the copy.
at::Tensor in_single(const at::Tensor& tensor) {
  c10::SmallVector<std::int64_t, 5> distinct(tensor.sizes().begin(), tensor.sizes().end());
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    if (tensor.strides()[i] == 0 && distinct[i] > 1) distinct[i] = 1;
  }
  if (at::IntArrayRef(distinct) != tensor.sizes()) {
    const auto once = tensor.as_strided(distinct, tensor.strides(), tensor.storage_offset());
    return in_single(once).expand(tensor.sizes());
  }
  const auto options = tensor.options().dtype(tensor.is_complex() ? at::kComplexFloat : at::kFloat);
  auto copy = tensor.is_non_overlapping_and_dense()
                  ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                  : at::empty(tensor.sizes(), options);
  at::native::copy_(copy, tensor, /*non_blocking=*/false);
  return copy;
}

}  // namespace

void* address_of(const CommandView& command, const TensorRecord& tensor) {
  const auto pointer = command.storage(tensor).pointer;
  const auto flags = command.shape(tensor).flags;
  if (flags & kPayload) return const_cast<std::byte*>(command.payload() + pointer);
  if (flags & kPinned)
    return reinterpret_cast<void*>(memory::pinned_pages::device_address(pointer));
  return AddressSpace::get().aperture(reinterpret_cast<const void*>(pointer));
}

bool is_device_memory(const void* pointer) noexcept {
  const auto& space = AddressSpace::get();
  return space.device_of(space.window(pointer)) >= 0;
}

ArgumentReader::ArgumentReader(std::span<const std::byte> command) : command_(command) {
  const CommandView view(command);
  rewind();
  end_ = view.payload();
  tensors_ = make_tensors(view);
}

void ArgumentReader::rewind() noexcept { next_ = CommandView(command_).values(); }

// In reverse: the first tensor of a storage is then the last that refers to it.
ArgumentReader::~ArgumentReader() {
  auto* const pool = TensorPool::of_thread();
  while (!tensors_.empty()) {
    auto tensor = tensors_.pop_back_val();
    if (pool != nullptr) pool->take_back(std::move(tensor));
  }
}

at::Tensor& ArgumentReader::tensor() {
  const auto index = value<std::int32_t>();
  if (index == kUndefined) return undefined_;
  TORCH_CHECK(static_cast<std::size_t>(index) < tensors_.size(),
              "openreg: a command has no such tensor (got ", index, ", expected less than ",
              tensors_.size(), ")");
  return tensors_[index];
}

ArgumentReader::Place ArgumentReader::place_of(const c10::TensorImpl* tensor) const noexcept {
  const CommandView view(command_);
  for (std::size_t i = 0; const auto& record : view.tensors()) {
    if (tensors_[i++].unsafeGetTensorImpl() != tensor) continue;
    return view.shape(record).flags & kPayload ? Place::kCommand : Place::kMemory;
  }
  return Place::kElsewhere;
}

std::size_t ArgumentReader::tensors_in_memory() const noexcept {
  const CommandView view(command_);
  return static_cast<std::size_t>(std::ranges::count_if(
      view.tensors(), [&](const auto& record) { return !(view.shape(record).flags & kPayload); }));
}

bool ArgumentReader::command_contains(const void* pointer) const noexcept {
  return !std::less<>()(pointer, static_cast<const void*>(command_.data())) &&
         std::less<>()(pointer, static_cast<const void*>(command_.data() + command_.size()));
}

bool ArgumentReader::can_serve_again() const noexcept {
  const CommandView view(command_);
  std::array<std::uint16_t, kMostStorages> tensors{};  // of each storage
  for (const auto& record : view.tensors()) ++tensors[record.storage];
  for (std::size_t i = 0; const auto& record : view.tensors()) {
    const auto& tensor = tensors_[i++];
    const auto* const impl = tensor.unsafeGetTensorImpl();
    if (tensor.use_count() != 1 || tensor.weak_use_count() != 1 ||
        impl->unsafe_storage().use_count() != tensors[record.storage] ||
        impl->autograd_meta() != nullptr)
      return false;
    const auto& shape = view.shape(record);
    if (!(shape.flags & kWritten)) continue;
    const auto strides = impl->strides();
    if (impl->storage_offset() != record.storage_offset ||
        !std::equal(strides.begin(), strides.end(), view.strides(record)))
      return false;
  }
  return true;
}

void ArgumentReader::throw_at_end() {
  TORCH_CHECK(false, "openreg: a command has fewer arguments than its kernel reads");
}

bool ArgumentReader::holds_any(std::span<const c10::ScalarType> dtypes) const noexcept {
  return std::ranges::any_of(tensors_, [dtypes](const at::Tensor& tensor) {
    return std::ranges::find(dtypes, tensor.scalar_type()) != dtypes.end();
  });
}

void ArgumentReader::widen(std::span<const c10::ScalarType> dtypes) {
  for (std::size_t i = 0; i < narrow_.size(); ++i) {  // of a run whose kernel has thrown
    if (narrow_[i].defined()) tensors_[i] = std::move(narrow_[i]);
  }
  narrow_.clear();
  // Real numbers beside complex ones of half precision are parts of a computation in complex64.
  const auto complex = std::ranges::find(dtypes, at::kComplexHalf) != dtypes.end() &&
                       holds_any(std::array{at::kComplexHalf});
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    auto& tensor = tensors_[i];
    const auto dtype = tensor.scalar_type();
    if (std::ranges::find(dtypes, dtype) == dtypes.end() && !(complex && dtype == at::kHalf))
      continue;
    narrow_.resize(tensors_.size());
    narrow_[i] = tensor;
    tensor = in_single(tensor);
  }
}

// The kernel's rounding is that of a copy to the narrower dtype.
void ArgumentReader::narrow() {
  const CommandView view(command_);
  for (std::size_t i = 0; const auto& record : view.tensors()) {
    auto& tensor = tensors_[i];
    auto& narrow = narrow_[i++];
    if (!narrow.defined()) continue;
    if (view.shape(record).flags & kWritten) {
      TORCH_CHECK(tensor.sizes() == narrow.sizes(), "openreg: a kernel resized its output (got ",
                  tensor.sizes(), ", expected ", narrow.sizes(), ")");
      at::native::copy_(narrow, tensor, /*non_blocking=*/false);
    }
    tensor = std::move(narrow);
  }
  narrow_.clear();
}

void ArgumentReader::write_back_outputs() {
  if (!narrow_.empty()) narrow();
  const CommandView view(command_);
  for (std::size_t i = 0; const auto& record : view.tensors()) {
    auto& tensor = tensors_[i++];
    const auto& shape = view.shape(record);
    if (!(shape.flags & kWritten)) continue;
    const at::IntArrayRef sizes(view.sizes(record), shape.dim);
    TORCH_CHECK(tensor.sizes() == sizes, "openreg: a kernel resized its output (got ",
                tensor.sizes(), ", expected ", sizes, ")");
    auto* impl = tensor.unsafeGetTensorImpl();
    if (const bool conj = (shape.flags & kConj) != 0; tensor.is_conj() != conj) {
      impl->_set_conj(conj);
      at::_ops::conj_physical_::call(tensor);
    }
    if (const bool neg = (shape.flags & kNeg) != 0; tensor.is_neg() != neg) {
      impl->_set_neg(neg);
      at::_ops::neg_::call(tensor);
    }
  }
}

}  // namespace openreg::ops
