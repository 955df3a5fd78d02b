#include "ops/tensors/factories.h"

#include <c10/core/Storage.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/stream.h"

namespace openreg::ops {
namespace {

const auto kFloat = caffe2::TypeMeta::Make<float>();

openreg::Stream& stream_of(c10::DeviceIndex device) { return backend::current_stream(device); }

std::int64_t allocated(c10::DeviceIndex device) {
  return backend::device_allocator().getDeviceStats(device).allocated_bytes[0].current;
}

TEST(MakeTensor, HasTheGeometryThatItIsGiven) {
  const auto tensor = make_tensor(stream_of(0), {2, 3}, {4, 1}, kFloat, 7 * sizeof(float));
  EXPECT_EQ(tensor.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(tensor.strides(), at::IntArrayRef({4, 1}));
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  EXPECT_EQ(tensor.storage().nbytes(), 7 * sizeof(float));
  EXPECT_FALSE(tensor.is_contiguous());
  EXPECT_TRUE(make_tensor(stream_of(0), {2, 3}, {3, 1}, kFloat, 24).is_contiguous());
}

TEST(MakeTensor, IsOnTheDeviceOfTheStreamWhateverIsCurrent) {
  const auto before = allocated(1);
  auto tensor = make_tensor(stream_of(1), {256}, {1}, kFloat, 1024);
  EXPECT_EQ(tensor.device(), c10::Device(backend::kDeviceType, 1));
  EXPECT_EQ(AddressSpace::get().device_of(tensor.data_ptr()), 1);
  EXPECT_EQ(backend::current_device(), 0);
  EXPECT_EQ(allocated(1), before + 1024);
  tensor.reset();
  EXPECT_EQ(allocated(1), before);
}

TEST(MakeTensor, MemoryGoesBackToTheStream) {
  auto& side = backend::stream_from_pool(0, Priority::kNormal);
  auto tensor = make_tensor(side, {256}, {1}, kFloat, 1024);
  const void* const address = tensor.data_ptr();
  tensor.reset();
  EXPECT_NE(make_tensor(stream_of(0), {256}, {1}, kFloat, 1024).data_ptr(), address);
  EXPECT_EQ(make_tensor(side, {256}, {1}, kFloat, 1024).data_ptr(), address);
}

}  // namespace
}  // namespace openreg::ops
