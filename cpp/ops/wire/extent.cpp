#include "ops/wire/extent.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include "base/quantity.h"

namespace openreg::ops {

namespace {

/// Quantized integers may be shorter than a byte; the sizes of their tensors count integers.
std::size_t elements_per_item(c10::ScalarType dtype) {
  if (dtype == c10::ScalarType::QUInt4x2) return 2;
  return dtype == c10::ScalarType::QUInt2x4 ? 4 : 1;
}

}  // namespace

std::size_t bytes_of(std::size_t elements, c10::ScalarType dtype) {
  const auto packed = elements_per_item(dtype);
  return (elements / packed + (elements % packed != 0)) * c10::elementSize(dtype);
}

void check_memory(const c10::TensorImpl& tensor, std::int64_t end, std::size_t nbytes) {
  const auto needed =
      bytes_of(static_cast<std::size_t>(end), c10::typeMetaToScalarType(tensor.dtype()));
  TORCH_CHECK(nbytes >= needed,
              "openreg: the storage of a tensor was resized to less than the tensor needs (got a "
              "storage of ",
              format_count(nbytes, "byte"), ", expected ", needed, " or more)");
}

}  // namespace openreg::ops
