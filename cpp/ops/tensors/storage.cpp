#include "ops/tensors/storage.h"

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/ResizeCommon.h>
#include <ATen/ops/resize_native.h>
#include <c10/util/safe_numerics.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "backend/storage.h"
#include "ops/tensors/factories.h"
#include "slot.h"

namespace openreg::ops {

namespace {

constexpr std::uint64_t kMostElements = std::numeric_limits<std::int64_t>::max();

const at::Tensor& resize(const at::Tensor& self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> format) {
  const auto old_nbytes = self.storage().nbytes();
  if (self.sizes() != size) {  // else it stays as it is, although its elements may be shared
    grow_storage(self.storage(),
                 bytes_needed(size, {}, self.dtype().itemsize(), self.storage_offset()));
  }
  at::native::resize_(self, size, format);  // finds the storage long enough
  if (fills_uninitialized_memory()) {
    at::native::fill_resize_deterministic_(self, static_cast<std::int64_t>(old_nbytes));
  }
  return self;
}

}  // namespace

std::size_t bytes_needed(at::IntArrayRef sizes, at::IntArrayRef strides, std::size_t itemsize,
                         std::int64_t offset) {
  // ATen makes the same checks, but only after the storage has grown.
  std::uint64_t elements = 0;
  TORCH_CHECK(!c10::safe_multiplies_u64(sizes, &elements) && elements <= kMostElements,
              "numel: integer multiplication overflow");
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return 0;
  return strides.empty() ? at::detail::computeStorageNbytesContiguous(sizes, itemsize, offset)
                         : at::detail::computeStorageNbytes(sizes, strides, itemsize, offset);
}

void grow_storage(const c10::Storage& storage, std::size_t nbytes) {
  if (nbytes > storage.nbytes()) backend::resize_storage(storage, nbytes);
}

c10::Storage empty_storage(c10::Device device) {
  return empty_on(device, {0}, at::kByte).storage();
}

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("resize_", TORCH_FN(resize)); }

}  // namespace openreg::ops
