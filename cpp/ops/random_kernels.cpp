#include "ops/random_kernels.h"

#include <ATen/TensorIterator.h>

#include <cstring>

namespace openreg::ops {

void copy_in_order(const at::Tensor& self, const at::Tensor& flat) {
  const auto bytes = self.itemsize();
  const auto* next = static_cast<const std::byte*>(flat.const_data_ptr());
  auto iterator = at::TensorIterator::borrowing_nullary_op(self);
  iterator.serial_for_each(
      [&](char** data, const std::int64_t* strides, std::int64_t inner, std::int64_t outer) {
        for (std::int64_t j = 0; j < outer; ++j) {
          for (std::int64_t i = 0; i < inner; ++i, next += bytes)
            std::memcpy(data[0] + i * strides[0] + j * strides[1], next, bytes);
        }
      },
      {0, self.numel()});
}

}  // namespace openreg::ops
