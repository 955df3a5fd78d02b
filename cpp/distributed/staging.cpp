#include "distributed/staging.h"

#include <ATen/ops/empty.h>

#include "backend/allocator.h"
#include "backend/race_detection.h"
#include "backend/shared_memory.h"
#include "backend/stream.h"
#include "distributed/arguments.h"
#include "memory/command_check.h"

namespace openreg::distributed {

at::Tensor Staging::input(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype) {
  backend::note_read(tensor.storage());
  use(tensor);
  if (fits(tensor, dtype)) {
    note(tensor, /*writes=*/false);
    return tensor;
  }
  auto copy =
      tensor.to(dtype.value_or(tensor.scalar_type())).resolve_conj().resolve_neg().contiguous();
  use(copy);
  return copy;
}

at::Tensor Staging::output(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype,
                           bool own) {
  expect_no_overlap(tensor);
  static_cast<void>(tensor.mutable_data_ptr());  // a lazy clone gets its own memory
  use(tensor);
  if (fits(tensor, dtype) && !own) {
    note(tensor, /*writes=*/true);
    return tensor;
  }
  auto room =
      at::empty(tensor.sizes(), tensor.options().dtype(dtype.value_or(tensor.scalar_type())));
  use(room);
  copies_.push_back({room, tensor});
  return room;
}

at::Tensor Staging::in_out(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype,
                           bool own) {
  auto both = output(tensor, dtype, own);
  if (!both.is_same(tensor)) both.copy_(tensor);
  return both;
}

at::Tensor Staging::packed_input(at::TensorList tensors) {
  auto pack = room_for(tensors);
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    backend::note_read(tensor.storage());
    use(tensor);
    pack.narrow(0, begin, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    begin += tensor.numel();
  }
  return pack;
}

at::Tensor Staging::packed_output(at::TensorList tensors) {
  auto pack = room_for(tensors);
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    expect_no_overlap(tensor);
    copies_.push_back({pack.narrow(0, begin, tensor.numel()).view(tensor.sizes()), tensor});
    begin += tensor.numel();
  }
  return pack;
}

void Staging::finish() {
  for (const auto& launch : after_) launch();
  for (const auto& [from, to] : copies_) {
    to.copy_(from);
    // Gloo's use of the memory ends with its operation; this copy's use does not.
    backend::device_allocator().recordStream(to.storage().data_ptr(), backend::to_torch(stream_));
  }
}

bool Staging::fits(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype) const {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         tensor.scalar_type() == dtype.value_or(tensor.scalar_type());
}

at::Tensor Staging::room_for(at::TensorList tensors) {
  std::int64_t numel = 0;
  for (const auto& tensor : tensors) numel += tensor.numel();
  auto room = at::empty({numel}, tensors.front().options());
  use(room);
  return room;
}

// The staging's own memory belongs to the collective's stream alone.
void Staging::note(const at::Tensor& tensor, bool writes) {
  if (!openreg::memory::checks::any() || tensor.numel() == 0) return;
  uses_.push_back(backend::use_of(tensor, writes).without_shape());  // the tensor may go first
  uses_.back().number = static_cast<std::uint16_t>(uses_.size() - 1);
}

void Staging::use(const at::Tensor& tensor) { memory_.push_back(tensor.storage()); }

}  // namespace openreg::distributed
