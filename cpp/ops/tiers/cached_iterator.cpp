#include "ops/tiers/cached_iterator.h"

#include <algorithm>
#include <functional>

namespace openreg::ops {

namespace {

/// Whether the elements lie in the device's memory or in the command, or are a number. Some meta
/// functions (of glu) leave operands that borrow views which no longer exist, so the tensor itself
/// is read only if its elements lie elsewhere.
bool lasts(const at::OperandInfo& operand, const ArgumentReader& arguments) {
  const auto* const data = operand.data;
  return data == nullptr || is_device_memory(data) || arguments.command_contains(data) ||
         operand.tensor_base().unsafeGetTensorImpl()->is_wrapped_number();
}

}  // namespace

bool computes_in_place(const at::TensorIteratorBase& iterator, const ArgumentReader& arguments) {
  using Place = ArgumentReader::Place;
  c10::SmallVector<const c10::TensorImpl*, 6> in_memory;  // of the command's, each once
  bool copies_other = false;
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const auto& operand = iterator.operand(i);
    const auto& original = operand.original_tensor_base();  // may no longer exist
    const bool is_copy = original.defined();
    const auto& tensor = is_copy ? original : operand.tensor_base();
    const auto place = arguments.place_of(tensor.unsafeGetTensorImpl());
    const auto* const impl = tensor.unsafeGetTensorImpl();
    if (place == Place::kMemory && std::ranges::find(in_memory, impl) == in_memory.end())
      in_memory.push_back(impl);
    if (!is_copy) {
      if (!lasts(operand, arguments)) return false;
    } else if (operand.is_output || place == Place::kMemory) {
      return false;
    } else if (place == Place::kElsewhere) {
      if (operand.tensor_base().dim() != 0) return false;
      copies_other = true;
    }
  }
  // If each of the command's tensors is an operand itself, what else was copied is a number that
  // the meta function has made a tensor of (gt.Scalar).
  return !copies_other || in_memory.size() == arguments.tensors_in_memory();
}

std::optional<OperandStorages> storages_of_operands(const at::TensorIteratorBase& iterator,
                                                    std::span<const std::byte> command) {
  const CommandView view(command);
  OperandStorages storages;
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const auto* const data = static_cast<const std::byte*>(iterator.operand(i).data);
    if (data == nullptr) return std::nullopt;
    std::int32_t in = -1;
    for (const auto& tensor : view.tensors()) {
      const auto* const begin = static_cast<const std::byte*>(address_of(view, tensor));
      if (std::less<>()(data, begin) || !std::less<>()(data, begin + view.storage(tensor).nbytes))
        continue;
      const auto storage = static_cast<std::int32_t>(tensor.storage);
      if (in != -1 && in != storage) return std::nullopt;  // they overlap
      in = storage;
    }
    storages.push_back(in);
  }
  return storages;
}

void move_operands(at::TensorIteratorBase& iterator, const OperandStorages& storages,
                   std::uint32_t storage, std::ptrdiff_t by) {
  for (std::size_t i = 0; i < storages.size(); ++i) {
    if (storages[i] != static_cast<std::int32_t>(storage)) continue;
    const auto operand = static_cast<std::int64_t>(i);
    iterator.unsafe_replace_operand(operand,
                                    static_cast<std::byte*>(iterator.data_ptr(operand)) + by);
  }
}

IteratorState state_of(const at::TensorIteratorBase& iterator) {
  IteratorState state(iterator.shape().begin(), iterator.shape().end());
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const auto& operand = iterator.operand(i);
    state.push_back(reinterpret_cast<std::int64_t>(operand.data));
    state.append(operand.stride_bytes.begin(), operand.stride_bytes.end());
  }
  return state;
}

}  // namespace openreg::ops
