#include "ops/random/random_kernels.h"

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

/// 32 bits slightly prefer the lower numbers of a range; some 5 % are allowed.
bool takes_64_bits(std::uint64_t range) { return range >= std::uint64_t{1} << 28; }

void expect_our_device(c10::Device device) {
  TORCH_CHECK(device.type() == backend::kDeviceType, "Expected a '", device.type(),
              "' device type for generator but found '", backend::kDeviceType, "'");
}
backend::PhiloxState take_numbers(const Generator& generator, c10::Device device,
                                  std::uint64_t count) {
  expect_our_device(device);
  return backend::reserve_philox(generator, device.index(), count);
}
backend::PhiloxState take_numbers(const Generator& generator, const at::TensorBase& self,
                                  int unroll) {
  return take_numbers(generator, self.device(), PhiloxGrid(self.numel(), unroll).numbers());
}
int unroll_of_reals(const at::TensorBase& self) {
  return self.scalar_type() == at::kDouble ? 2 : 4;
}
int unroll_of_integers(std::uint64_t range) { return takes_64_bits(range) ? 2 : 4; }

}  // namespace openreg::ops
