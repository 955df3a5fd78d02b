#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/ParallelGuard.h>

#include <utility>

#include "device.h"

// How an operator reaches the device: it makes arguments that a command may keep, and submits the
// command to the current stream. The host continues.
namespace torch_acme {

inline bool is_ours(const at::Tensor& tensor) { return tensor.device().type() == kAcme; }

/// The elements of a device tensor as a tensor of the CPU, for commands. It does not own the
/// memory: the allocator gives it to nobody else before the stream has passed the free. `written`
/// also separates it from lazy clones.
at::Tensor for_command(const at::Tensor& tensor, bool written);
inline at::Tensor to_read(const at::Tensor& tensor) { return for_command(tensor, false); }
inline at::Tensor to_write(const at::Tensor& tensor) { return for_command(tensor, true); }

/// The operators that a command calls stand for kernels: they do not appear in profiles, and use
/// the thread of the stream only.
template <class Command>
void launch(const at::Tensor& on, Command command) {
  current_stream(on.device().index()).submit([command = std::move(command)]() mutable {
    const at::DisableRecordFunctionGuard unrecorded;
    const c10::ParallelGuard serial(true);
    command();
  });
}

}  // namespace torch_acme
