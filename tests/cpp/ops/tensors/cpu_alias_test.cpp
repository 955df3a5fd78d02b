#include "ops/tensors/cpu_alias.h"

#include <ATen/ops/_lazy_clone.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/COW.h>
#include <gtest/gtest.h>

#include "../test_device.h"
#include "address_space/address_space.h"
#include "backend/device.h"

namespace openreg::ops {
namespace {

at::Tensor lazy_clone_of_ones() {
  return at::_lazy_clone(at::ones({4}, at::TensorOptions(kDevice)));
}
bool is_lazy(const at::Tensor& tensor) {
  return c10::impl::cow::is_cow_data_ptr(tensor.storage().data_ptr());
}

TEST(CpuAliases, ALazyCloneThatIsReadGoesOnSharingItsMemory) {
  const auto clone = lazy_clone_of_ones();
  CpuAliases aliases(kDevice, "test");
  EXPECT_EQ(aliases.alias(clone, Access::kRead).const_data_ptr(),
            AddressSpace::get().aperture(clone.const_data_ptr()));
  EXPECT_TRUE(is_lazy(clone));
}

TEST(CpuAliases, ALazyCloneThatIsWrittenHasMemoryOfItsOwnAlsoForThoseThatReadItBefore) {
  const auto original = at::ones({4}, at::TensorOptions(kDevice));
  const auto clone = at::_lazy_clone(original);
  CpuAliases aliases(kDevice, "test");
  const auto read = aliases.alias(clone.view({2, 2}), Access::kRead);
  auto written = aliases.alias(clone, Access::kWrite);
  EXPECT_FALSE(is_lazy(clone));
  written.fill_(3);
  aliases.copy_back();
  EXPECT_TRUE(at::equal(read, at::full({2, 2}, 3.)));
  EXPECT_TRUE(at::equal(clone.cpu(), at::full({4}, 3.)));
  EXPECT_TRUE(at::equal(original.cpu(), at::ones({4})));
  EXPECT_EQ(written.const_data_ptr(), AddressSpace::get().aperture(clone.const_data_ptr()));
}

}  // namespace
}  // namespace openreg::ops
