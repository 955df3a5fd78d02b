#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>
#include <torch/library.h>

#include "backend/allocator.h"

namespace openreg::ops {

namespace {

// No arithmetic, so no CPU kernel to run instead: only the allocator has to know.
void record_stream(at::Tensor& self, c10::Stream stream) {
  backend::device_allocator().recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("record_stream", TORCH_FN(record_stream)); }

}  // namespace openreg::ops
