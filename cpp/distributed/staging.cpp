#include "distributed/staging.h"

#include <ATen/ops/empty.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "backend/allocator.h"
#include "backend/race_detection.h"
#include "backend/shared_memory.h"
#include "backend/stream.h"
#include "base/settings.h"
#include "distributed/arguments.h"
#include "distributed/host_view.h"
#include "memory/command_check.h"
#include "memory/value_tracker.h"

namespace openreg::distributed {

// Note [Collectives without computing]
// If the device does not compute, its memory has no contents worth moving, except for what programs
// decide by: DistributedDataParallel compares the parameters of all ranks, objects travel as bytes.
// So calls of up to kLargestMoved bytes are performed. All ranks must agree, so the number of bytes
// is one that all know: of all ranks together, or of the message between two. A larger call becomes
// a barrier, a larger message a byte: order, timeouts and errors of other ranks are as usual.
//
// NCCL takes no memory of the allocator for what Gloo needs, so this takes none either. The host's
// copies are made between begin and end of the operation, on the stream's time, so nothing needs to
// keep the device's memory from being reused: the work does until the program waits for it, as with
// NCCL (Stash). What was freed when does not depend on how fast Gloo is.
namespace {
constexpr std::int64_t kLargestMoved = std::int64_t{1} << 20;
}

Movement movement_of(std::int64_t bytes) {
  if (computes()) return Movement::kInPlace;
  return bytes <= kLargestMoved ? Movement::kByCopies : Movement::kNone;
}

bool moves_message(std::int64_t bytes, int messages) {
  return computes() || bytes <= kLargestMoved / messages;
}

at::Tensor Staging::input(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype) {
  backend::note_read(tensor.storage());
  use(tensor);
  const bool in_place = movement_ == Movement::kInPlace;
  if (!in_place || fits(tensor, dtype)) note(tensor, /*writes=*/false);
  if (in_place) {
    if (fits(tensor, dtype)) return tensor;
    auto copy =
        tensor.to(dtype.value_or(tensor.scalar_type())).resolve_conj().resolve_neg().contiguous();
    use(copy);
    return copy;
  }
  auto room = empty(tensor.sizes(), tensor.options().dtype(dtype.value_or(tensor.scalar_type())));
  copy(room, tensor);
  return room;
}

at::Tensor Staging::output(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype,
                           bool own) {
  expect_no_overlap(tensor);
  static_cast<void>(tensor.mutable_data_ptr());  // a lazy clone gets its own memory
  use(tensor);
  const bool direct = movement_ == Movement::kInPlace && fits(tensor, dtype) && !own;
  if (direct || movement_ != Movement::kInPlace) note(tensor, /*writes=*/true);
  if (direct) return tensor;
  auto room = empty(tensor.sizes(), tensor.options().dtype(dtype.value_or(tensor.scalar_type())));
  if (movement_ == Movement::kInPlace) use(room);
  copies_.push_back({room, tensor});
  return room;
}

at::Tensor Staging::in_out(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype,
                           bool own) {
  auto both = output(tensor, dtype, own);
  if (movement_ != Movement::kInPlace) note(tensor, /*writes=*/false);
  if (!both.is_same(tensor)) copy(both, tensor);
  return both;
}

at::Tensor Staging::packed_input(at::TensorList tensors) {
  auto pack = room_for(tensors);
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    backend::note_read(tensor.storage());
    use(tensor);
    if (movement_ != Movement::kInPlace) note(tensor, /*writes=*/false);
    if (!moves(tensor, tensors.size())) {
      moves_all_ = false;
      continue;
    }
    copy(pack.narrow(0, begin, tensor.numel()).view(tensor.sizes()), tensor);
    begin += tensor.numel();
  }
  return pack;
}

at::Tensor Staging::packed_output(at::TensorList tensors) {
  auto pack = room_for(tensors);
  std::int64_t begin = 0;
  for (const auto& tensor : tensors) {
    expect_no_overlap(tensor);
    if (movement_ != Movement::kInPlace) {
      use(tensor);
      note(tensor, /*writes=*/true);
    }
    if (!moves(tensor, tensors.size())) {
      moves_all_ = false;
      continue;
    }
    copies_.push_back({pack.narrow(0, begin, tensor.numel()).view(tensor.sizes()), tensor});
    begin += tensor.numel();
  }
  return pack;
}

at::Tensor Staging::scratch(const at::Tensor& tensor) {
  if (movement_ != Movement::kInPlace) return tensor;
  auto copy = tensor.clone(at::MemoryFormat::Contiguous);
  use(copy);
  return copy;
}

at::Tensor Staging::operand(const at::Tensor& tensor) {
  use(tensor);  // the caller may give it up before the group's stream reads it
  switch (movement_) {
    case Movement::kInPlace:
      return tensor;
    case Movement::kByCopies:
      return strided_host_view(tensor);
    default:
      return empty(tensor.sizes(), tensor.options());
  }
}

void Staging::before(std::function<void()> compute) {
  if (movement_ == Movement::kInPlace) {
    compute();
  } else {
    before_.push_back(std::move(compute));
  }
}

void Staging::finish() {
  if (movement_ != Movement::kInPlace) return;
  for (const auto& launch : after_) launch();
  for (const auto& [from, to] : copies_) {
    to.copy_(from);
    // Gloo's use of the memory ends with its operation; this copy's use does not.
    backend::device_allocator().recordStream(to.storage().data_ptr(), backend::to_torch(stream_));
  }
}

void Staging::note_values(Received received) const {
  using openreg::memory::Values;
  auto* const tracker = openreg::memory::ValueTracker::get();
  if (tracker == nullptr || movement_ == Movement::kInPlace) return;
  auto values = Values::kKnown;
  bool has_inputs = false;
  for (const auto& use : uses_) {
    if (use.writes) continue;
    has_inputs = true;
    values = std::min(values, tracker->values_of(use.storage));
  }
  if (!has_inputs && received == Received::kZeros) values = Values::kZeros;
  if (movement_ == Movement::kNone || !moves_all_) values = Values::kNone;
  for (const auto& use : uses_) {
    const bool wholly = use.footprint.bytes() >= use.storage_bytes;
    if (use.writes) tracker->written(use.storage, wholly, values);
  }
}

std::function<void()> Staging::arrival() {
  if (movement_ != Movement::kByCopies) return nullptr;
  return [steps = std::move(before_)] {
    for (const auto& step : steps) step();
  };
}

std::function<void()> Staging::departure() {
  if (movement_ != Movement::kByCopies) return nullptr;
  auto steps = std::move(after_);
  for (const auto& [from, to] : copies_) {
    steps.emplace_back([from, to = strided_host_view(to)] { static_cast<void>(to.copy_(from)); });
  }
  return [steps = std::move(steps)] {
    for (const auto& step : steps) step();
  };
}

bool Staging::fits(const at::Tensor& tensor, std::optional<c10::ScalarType> dtype) const {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() &&
         tensor.scalar_type() == dtype.value_or(tensor.scalar_type());
}

at::Tensor Staging::empty(at::IntArrayRef sizes, const at::TensorOptions& options) const {
  if (movement_ == Movement::kInPlace) return at::empty(sizes, options);
  // Other threads write it, which are not in inference mode, even if the caller is.
  const c10::InferenceMode no_inference_tensor(false);
  return at::empty(sizes, options.device(movement_ == Movement::kNone ? at::kMeta : at::kCPU));
}

bool Staging::moves(const at::Tensor& message, std::size_t messages) const {
  return movement_ == Movement::kInPlace ||
         moves_message(static_cast<std::int64_t>(message.nbytes()), static_cast<int>(messages));
}

at::Tensor Staging::room_for(at::TensorList tensors) {
  std::int64_t numel = 0;
  for (const auto& tensor : tensors) numel += moves(tensor, tensors.size()) ? tensor.numel() : 0;
  auto room = empty({numel}, tensors.front().options());
  if (movement_ == Movement::kInPlace) use(room);
  return room;
}

void Staging::copy(const at::Tensor& to, const at::Tensor& from) {
  switch (movement_) {
    case Movement::kInPlace:
      static_cast<void>(to.copy_(from));
      return;
    case Movement::kByCopies:
      before_.emplace_back(
          [to, from = strided_host_view(from)] { static_cast<void>(to.copy_(from)); });
      return;
    default:
      return;
  }
}

// The staging's own memory belongs to the collective's stream alone.
void Staging::note(const at::Tensor& tensor, bool writes) {
  if (!openreg::memory::checks::any() || tensor.numel() == 0) return;
  uses_.push_back(backend::use_of(tensor, writes).without_shape());  // the tensor may go first
  uses_.back().number = static_cast<std::uint16_t>(uses_.size() - 1);
}

void Staging::use(const at::Tensor& tensor) { memory_.push_back(tensor.storage()); }

}  // namespace openreg::distributed
