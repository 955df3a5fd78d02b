#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "backend/allocator.h"
#include "backend/library.h"

namespace openreg::ops {

namespace {

// No arithmetic, so no CPU kernel to run instead: only the allocator has to know.
void record_stream(at::Tensor& self, c10::Stream stream) {
  backend::device_allocator().recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("record_stream", TORCH_FN(record_stream)); }

}  // namespace openreg::ops
