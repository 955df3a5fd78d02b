#include "ops/wire/argument_reader.h"

#include <ATen/ops/as_strided.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/neg_ops.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "ops/wire/command_layout.h"
#include "runtime/address_space/address_space.h"

namespace openreg::ops {

namespace {

void* address_of(const CommandView& command, const TensorShape& shape,
                 const StorageRecord& storage) {
  if (shape.flags & kPayload) return const_cast<std::byte*>(command.payload() + storage.pointer);
  if (shape.flags & kPinned) return reinterpret_cast<void*>(storage.pointer);
  return AddressSpace::get().aperture(reinterpret_cast<const void*>(storage.pointer));
}

at::Tensor make_cpu_tensor(const c10::Storage& storage, const CommandView& command,
                           const TensorRecord& record) {
  const auto& shape = command.shape(record);
  auto tensor = at::detail::make_tensor_base<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(shape.type()));
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides({command.sizes(record), shape.dim},
                              {command.strides(record), shape.dim}, record.storage_offset);
  if (shape.flags & kConj) impl->_set_conj(true);
  if (shape.flags & kNeg) impl->_set_neg(true);
  if (shape.flags & kWrappedNumber) impl->set_wrapped_number(true);
  return at::Tensor(std::move(tensor));
}

CommandTensors make_tensors(const CommandView& command) {
  CommandTensors made;
  made.storages.resize(command.header().storages);
  for (const auto& record : command.tensors()) {
    auto& storage = made.storages[record.storage];
    if (!storage) {
      const auto& from = command.storage(record);
      void* const data = address_of(command, command.shape(record), from);
      storage = c10::Storage(c10::Storage::use_byte_size_t(), from.nbytes,
                             c10::DataPtr(data, c10::Device(c10::kCPU)), /*allocator=*/nullptr,
                             /*resizable=*/false);
    }
    made.tensors.push_back(make_cpu_tensor(storage, command, record));
  }
  return made;
}

/// A copy in float32, of the same strides if no elements share memory; dimensions that repeat
/// elements do so in the copy.
at::Tensor in_float(const at::Tensor& tensor) {
  c10::SmallVector<std::int64_t, 5> distinct(tensor.sizes().begin(), tensor.sizes().end());
  for (std::size_t i = 0; i < distinct.size(); ++i) {
    if (tensor.strides()[i] == 0 && distinct[i] > 1) distinct[i] = 1;
  }
  if (at::IntArrayRef(distinct) != tensor.sizes()) {
    const auto once = tensor.as_strided(distinct, tensor.strides(), tensor.storage_offset());
    return in_float(once).expand(tensor.sizes());
  }
  const auto options = tensor.options().dtype(at::kFloat);
  auto copy = tensor.is_non_overlapping_and_dense()
                  ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                  : at::empty(tensor.sizes(), options);
  at::native::copy_(copy, tensor, /*non_blocking=*/false);
  return copy;
}

}  // namespace

ArgumentReader::ArgumentReader(std::span<const std::byte> command) : command_(command) {
  const CommandView view(command);
  rewind();
  end_ = view.payload();
  made_ = make_tensors(view);
}

void ArgumentReader::rewind() noexcept { next_ = CommandView(command_).values(); }

ArgumentReader::~ArgumentReader() = default;

at::Tensor& ArgumentReader::tensor() {
  const auto index = value<std::int32_t>();
  if (index == kUndefined) return undefined_;
  TORCH_CHECK(static_cast<std::size_t>(index) < made_.tensors.size(),
              "openreg: a command has no such tensor (got ", index, ", expected less than ",
              made_.tensors.size(), ")");
  return made_.tensors[index];
}

ArgumentReader::Place ArgumentReader::place_of(const c10::TensorImpl* tensor) const noexcept {
  const CommandView view(command_);
  for (std::size_t i = 0; const auto& record : view.tensors()) {
    if (made_.tensors[i++].unsafeGetTensorImpl() != tensor) continue;
    return view.shape(record).flags & kPayload ? Place::kCommand : Place::kMemory;
  }
  return Place::kElsewhere;
}

std::size_t ArgumentReader::tensors_in_memory() const noexcept {
  const CommandView view(command_);
  return static_cast<std::size_t>(std::ranges::count_if(
      view.tensors(), [&](const auto& record) { return !(view.shape(record).flags & kPayload); }));
}

void ArgumentReader::throw_at_end() {
  TORCH_CHECK(false, "openreg: a command has fewer arguments than its kernel reads");
}

void ArgumentReader::widen(std::span<const c10::ScalarType> dtypes) {
  for (std::size_t i = 0; i < made_.tensors.size(); ++i) {
    auto& tensor = made_.tensors[i];
    if (std::ranges::find(dtypes, tensor.scalar_type()) == dtypes.end()) continue;
    narrow_.resize(made_.tensors.size());
    narrow_[i] = tensor;
    tensor = in_float(tensor);
  }
}

// The kernel's rounding is that of a copy to the narrower dtype.
void ArgumentReader::narrow() {
  const CommandView view(command_);
  for (std::size_t i = 0; const auto& record : view.tensors()) {
    auto& tensor = made_.tensors[i];
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

void ArgumentReader::settle_outputs() {
  if (!narrow_.empty()) narrow();
  const CommandView view(command_);
  for (std::size_t i = 0; const auto& record : view.tensors()) {
    auto& tensor = made_.tensors[i++];
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
