#include "ops/wire/kept_tensors.h"

#include <gtest/gtest.h>

#include <functional>

#include "backend/device.h"
#include "ops/tensors/factories.h"
#include "ops/wire/argument_reader.h"
#include "ops/wire/argument_writer.h"
#include "runtime/address_space.h"

namespace openreg::ops {
namespace {

const c10::Device kDevice(backend::kDeviceType, 0);

/// Reads `tensor` from a command of `plan`, and gives it to `use` as a kernel gets it.
void run(std::uint64_t plan, const at::Tensor& tensor,
         const std::function<void(at::Tensor&)>& use) {
  ArgumentWriter writer("aten::add", kDevice);
  writer.tensor(tensor, Access::kWrite);
  ArgumentReader reader(writer.finish(plan));
  use(reader.tensor());
}

// A kept object is known by its version, which a new one begins at 0.
void mark(at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); }
void expect_kept(at::Tensor& tensor) { EXPECT_GT(tensor._version(), 0); }
void expect_new(at::Tensor& tensor) { EXPECT_EQ(tensor._version(), 0); }

at::Tensor matrix() { return empty_on(kDevice, {2, 3}, at::kFloat); }

TEST(KeptTensors, TheNextCommandOfThePlanGetsThemWithItsOwnMemory) {
  run(1'000'001, matrix(), mark);
  const auto other = empty_on(kDevice, {4, 3}, at::kFloat).slice(0, 2);
  run(1'000'001, other, [&](at::Tensor& tensor) {
    expect_kept(tensor);
    EXPECT_EQ(tensor.const_data_ptr(), AddressSpace::get().aperture(other.const_data_ptr()));
    EXPECT_EQ(tensor.storage_offset(), 6);
    EXPECT_EQ(tensor.storage().nbytes(), 48);
  });
}

TEST(KeptTensors, ThoseOfAnotherPlanOrOfNoneAreNew) {
  run(1'000'002, matrix(), mark);
  run(1'000'003, matrix(), expect_new);
  run(0, matrix(), mark);
  run(0, matrix(), expect_new);
}

TEST(KeptTensors, AreNotKeptIfTheKernelHasChangedThemOrStillHoldsThem) {
  run(1'000'004, matrix(), [](at::Tensor& tensor) {
    mark(tensor);
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous({6});
  });
  run(1'000'004, matrix(), expect_new);
  at::Tensor held;
  run(1'000'005, matrix(), [&](at::Tensor& tensor) {
    mark(tensor);
    held = tensor;
  });
  run(1'000'005, matrix(), expect_new);
  run(1'000'006, matrix(), [&](at::Tensor& tensor) {
    mark(tensor);
    held = tensor.alias();
  });
  run(1'000'006, matrix(), expect_new);
}

}  // namespace
}  // namespace openreg::ops
