#include "ops/wire/reach.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

namespace openreg::ops {

namespace {

/// Quantized integers may be shorter than a byte; PyTorch counts their tensors' sizes in integers.
std::int64_t elements_per_item(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::QUInt4x2:
      return 2;
    case c10::ScalarType::QUInt2x4:
      return 4;
    default:
      return 1;
  }
}

}  // namespace

void check_memory(const c10::TensorImpl& tensor, std::int64_t end, std::size_t nbytes) {
  const auto packed = elements_per_item(c10::typeMetaToScalarType(tensor.dtype()));
  const auto items = static_cast<std::size_t>((end + packed - 1) / packed);
  const auto needed = items * tensor.itemsize();
  TORCH_CHECK(nbytes >= needed,
              "openreg: the storage of a tensor has been resized below it (got a storage of ",
              nbytes, " bytes, expected ", needed, " or more)");
}

}  // namespace openreg::ops
