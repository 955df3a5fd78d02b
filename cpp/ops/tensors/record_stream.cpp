#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "backend/allocator.h"
#include "slot.h"

namespace openreg::ops {

namespace {

// There is no arithmetic, and so no CPU kernel to run: only the allocator must be informed.
void record_stream(at::Tensor& self, c10::Stream stream) {
  backend::device_allocator().recordStream(self.storage().data_ptr(), stream);
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("record_stream", TORCH_FN(record_stream)); }

}  // namespace openreg::ops
