// Copies. Tensor.to(), cpu(), clone(), contiguous() and copy_() end here if one tensor or both are
// on the device. The dtypes and strides may differ, `from` may need broadcasting, and either tensor
// may have a conj or neg bit, which for_command() keeps.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_copy_from.h>
#include <ATen/ops/resize.h>
#include <torch/library.h>

#include "launch.h"
#include "pinned.h"

namespace torch_acme {

namespace {

void wait_for(driver::Stream& stream, driver::Stream& other) {
  driver::Event event;
  event.record(other);
  event.wait(stream);
}

// On the stream of `from`. The other device's stream waits until the copy has completed, and the
// copy waits for what was submitted to it before.
void copy_on_devices(const at::Tensor& from, const at::Tensor& to) {
  auto& source = current_stream(from.device().index());
  auto& target = current_stream(to.device().index());
  const bool two = &source != &target;
  if (two) wait_for(source, target);
  launch(from, [to = to_write(to), from = to_read(from).expand(to.sizes())] { to.copy_(from); });
  if (two) wait_for(target, source);
}

// Whether the host need not wait: the memory is pinned, and the allocator will not reuse it before
// the stream has passed this point.
bool stays(const at::Tensor& host, driver::Stream& stream) {
  return is_pinned(host.const_data_ptr()) &&
         pinned_allocator().record_event(const_cast<void*>(host.const_data_ptr()),
                                         host.storage().data_ptr().get_context(), to_torch(stream));
}

void copy_from_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  auto& stream = current_stream(to.device().index());
  const bool pinned = non_blocking && is_pinned(from.const_data_ptr());
  // A program may change pageable memory as soon as this returns.
  const auto host = non_blocking && !pinned ? from.clone() : to_read(from);
  launch(to, [to = to_write(to), from = host.expand(to.sizes())] { to.copy_(from); });
  if (!non_blocking || (pinned && !stays(from, stream))) stream.synchronize();
}

void copy_to_host(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  auto& stream = current_stream(from.device().index());
  launch(from, [to = to_write(to), from = to_read(from).expand(to.sizes())] { to.copy_(from); });
  if (!non_blocking || !stays(to, stream)) stream.synchronize();
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (is_ours(from) && is_ours(to)) {
    copy_on_devices(from, to);
  } else if (is_ours(to)) {
    TORCH_CHECK(from.is_cpu(), "acme: cannot copy from ", from.device());
    copy_from_host(from, to, non_blocking);
  } else {
    TORCH_CHECK(to.is_cpu(), "acme: cannot copy to ", to.device());
    copy_to_host(from, to, non_blocking);
  }
  return to;
}

// The fallback writes back the tensors that an operator changes.
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  at::_copy_from(from, to.resize_(from.sizes()), /*non_blocking=*/false);
  return to;
}

// item(), and every other value that the host needs.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  current_stream(self.device().index()).synchronize();
  return to_read(self).item();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
}

// PyTorch's kernel at these keys resolves a bit by a copy, which has the bit again.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace torch_acme
