#include "ops/wire/kept_tensors.h"

#include <c10/core/DispatchKeySet.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/per_thread.h"

namespace openreg::ops {

namespace {

struct Slot {
  std::uint64_t plan = 0;
  CommandTensors tensors;
};

using Slots = std::array<Slot, 1024>;

Slot* slot_of(std::uint64_t plan) {
  auto* const slots = plan == 0 ? nullptr : per_thread<Slots>();
  return slots == nullptr ? nullptr : &(*slots)[plan % slots->size()];
}

/// What the constructor of a CPU tensor makes of the key CPU.
c10::DispatchKeySet keys_of_new_tensors() {
  constexpr auto kCpu = c10::BackendComponent::CPUBit;
  return c10::DispatchKeySet(c10::DispatchKey::CPU) |
         c10::getAutocastRelatedKeySetFromBackend(kCpu) |
         c10::getAutogradRelatedKeySetFromBackend(kCpu);
}

bool is_as_written(const CommandView& command, const TensorRecord& record,
                   const at::Tensor& tensor) {
  const auto& shape = command.shape(record);
  const auto* const impl = tensor.unsafeGetTensorImpl();
  return tensor.use_count() == 1 && tensor.weak_use_count() <= 1 &&
         impl->sizes() == at::IntArrayRef(command.sizes(record), shape.dim) &&
         impl->strides() == at::IntArrayRef(command.strides(record), shape.dim) &&
         impl->key_set() == keys_of_new_tensors();
}

}  // namespace

bool KeptTensors::take(std::uint64_t plan, CommandTensors& tensors) {
  auto* const slot = slot_of(plan);
  if (slot == nullptr || slot->plan != plan) return false;
  slot->plan = 0;  // a command that waits may let this thread run another one of the plan
  tensors = std::move(slot->tensors);
  return true;
}

void KeptTensors::put(const CommandView& command, CommandTensors&& tensors) {
  const auto plan = command.header().plan;
  auto* const slot = slot_of(plan);
  if (slot == nullptr) return;
  for (std::size_t i = 0; const auto& record : command.tensors()) {
    if (!is_as_written(command, record, tensors.tensors[i++])) return;
    auto& storage = tensors.storages[record.storage];
    const auto users =
        std::count_if(command.tensors().begin(), command.tensors().end(),
                      [&](const TensorRecord& other) { return other.storage == record.storage; });
    if (storage.use_count() != static_cast<std::size_t>(users) + 1) return;
  }
  slot->plan = plan;
  slot->tensors = std::move(tensors);
}

}  // namespace openreg::ops
