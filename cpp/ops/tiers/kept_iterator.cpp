#include "ops/tiers/kept_iterator.h"

#include <functional>

#include "runtime/address_space.h"

namespace openreg::ops {

namespace {

/// Whether the tensor lies in the device's memory or in the command, or is a number.
bool lasts(const at::TensorBase& tensor, std::span<const std::byte> command) {
  const auto* const data = static_cast<const std::byte*>(tensor.const_data_ptr());
  const auto& space = AddressSpace::get();
  return data == nullptr || tensor.unsafeGetTensorImpl()->is_wrapped_number() ||
         space.device_of(space.window(data)) >= 0 ||
         (!std::less<>()(data, command.data()) &&
          std::less<>()(data, command.data() + command.size()));
}

}  // namespace

bool computes_in_place(const at::TensorIteratorBase& iterator, std::span<const std::byte> command) {
  for (int i = 0; i < iterator.ntensors(); ++i) {
    const auto& operand = iterator.operand(i);
    if (operand.original_tensor_base().defined() || !lasts(operand.tensor_base(), command))
      return false;
  }
  return true;
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
