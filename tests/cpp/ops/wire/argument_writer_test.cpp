#include "ops/wire/argument_writer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/TensorOptions.h>
#include <gtest/gtest.h>

#include <vector>

#include "../test_device.h"
#include "address_space/address_space.h"
#include "backend/device.h"
#include "backend/storage.h"
#include "ops/tensors/factories.h"
#include "ops/wire/typed_arguments.h"
#include "runtime/command.h"

namespace openreg::ops {
namespace {

/// The command at another address, as a queue or another process has it.
std::vector<std::byte> sent(ArgumentWriter& writer) {
  const auto bytes = writer.finish();
  return {bytes.begin(), bytes.end()};
}

const Kernel kernel{"openreg_test::arguments", [](const Kernel&, std::span<const std::byte>) {}};

TEST(Arguments, ValuesComeBackInOrder) {
  ArgumentWriter writer(kernel.name(), kDevice);
  Argument<at::Scalar>::write(writer, at::Scalar(2.5));
  Argument<at::Scalar>::write(writer, at::Scalar(true));
  Argument<at::Scalar>::write(writer, at::Scalar(c10::complex<double>(1, -2)));
  Argument<std::optional<at::Scalar>>::write(writer, std::nullopt);
  Argument<at::IntArrayRef>::write(writer, {3, 4, 5});
  Argument<at::OptionalIntArrayRef>::write(writer, std::nullopt);
  Argument<c10::SymInt>::write(writer, c10::SymInt(7));
  Argument<std::string_view>::write(writer, "linear");
  Argument<std::optional<std::string_view>>::write(writer, "floor");
  Argument<std::optional<at::ScalarType>>::write(writer, at::kHalf);
  Argument<bool>::write(writer, true);
  const auto command = sent(writer);

  ArgumentReader reader(command);
  EXPECT_EQ(Argument<at::Scalar>::read(reader).toDouble(), 2.5);
  const auto boolean = Argument<at::Scalar>::read(reader);
  EXPECT_TRUE(boolean.isBoolean() && boolean.toBool());
  EXPECT_EQ(Argument<at::Scalar>::read(reader).toComplexDouble(), c10::complex<double>(1, -2));
  EXPECT_FALSE(Argument<std::optional<at::Scalar>>::read(reader).has_value());
  EXPECT_EQ(Argument<at::IntArrayRef>::read(reader), at::IntArrayRef({3, 4, 5}));
  EXPECT_FALSE(Argument<at::OptionalIntArrayRef>::read(reader).has_value());
  EXPECT_EQ(Argument<c10::SymInt>::read(reader), 7);
  EXPECT_EQ(Argument<std::string_view>::read(reader), "linear");
  EXPECT_EQ(Argument<std::optional<std::string_view>>::read(reader), "floor");
  EXPECT_EQ(Argument<std::optional<at::ScalarType>>::read(reader), at::kHalf);
  EXPECT_TRUE(Argument<bool>::read(reader));
}

TEST(Arguments, DeviceTensorsComeBackOverTheAperture) {
  const auto tensor = empty_on(kDevice, {4, 6}, at::kFloat).t();
  ArgumentWriter writer(kernel.name(), kDevice);
  writer.tensor(tensor);
  const auto command = sent(writer);

  ArgumentReader reader(command);
  const auto& alias = reader.tensor();
  EXPECT_TRUE(alias.is_cpu());
  EXPECT_EQ(alias.data_ptr(), AddressSpace::get().aperture(tensor.data_ptr()));
  EXPECT_EQ(alias.sizes(), tensor.sizes());
  EXPECT_EQ(alias.strides(), tensor.strides());
  EXPECT_EQ(alias.scalar_type(), at::kFloat);
}

TEST(Arguments, IdentityAndStorageAreShared) {
  const auto tensor = empty_on(kDevice, {4}, at::kFloat);
  const auto view = tensor.view({2, 2});
  ArgumentWriter writer(kernel.name(), kDevice);
  writer.tensor(tensor);
  writer.tensor(view);
  writer.tensor(tensor, Access::kWrite);
  const auto command = sent(writer);

  ArgumentReader reader(command);
  const auto first = reader.tensor();
  const auto second = reader.tensor();
  const auto third = reader.tensor();
  EXPECT_TRUE(first.is_same(third));
  EXPECT_FALSE(first.is_same(second));
  EXPECT_TRUE(first.storage().is_alias_of(second.storage()));
}

TEST(Arguments, ValuesOfCpuTensorsTravelWithTheCommand) {
  const auto scalar = at::full({}, 3.0, at::kDouble);
  const auto small = at::arange(5, at::kInt);
  ArgumentWriter writer(kernel.name(), kDevice);
  writer.tensor(scalar);
  writer.inline_tensor(small);
  const auto command = sent(writer);

  ArgumentReader reader(command);
  EXPECT_EQ(reader.tensor().item<double>(), 3.0);
  EXPECT_TRUE(at::equal(reader.tensor(), small));
}

TEST(Arguments, MarksTravel) {
  auto wrapped = at::ones({}, at::kDouble);
  wrapped.unsafeGetTensorImpl()->set_wrapped_number(true);
  const auto complex = empty_on(kDevice, {2}, at::kComplexFloat);
  ArgumentWriter writer(kernel.name(), kDevice);
  writer.tensor(wrapped);
  writer.tensor(complex.conj());
  writer.tensor(at::imag(complex.conj()));
  const auto command = sent(writer);

  ArgumentReader reader(command);
  EXPECT_TRUE(reader.tensor().unsafeGetTensorImpl()->is_wrapped_number());
  EXPECT_TRUE(reader.tensor().is_conj());
  EXPECT_TRUE(reader.tensor().is_neg());
}

TEST(Arguments, AMarkIsOnlyThatOfItsTensor) {
  const auto complex = empty_on(kDevice, {2}, at::kComplexFloat);
  const auto conjugate = complex.conj();
  const auto negative = at::imag(conjugate);
  const auto part = at::imag(complex);
  ArgumentWriter writer(kernel.name(), kDevice);
  for (const auto* tensor : {&conjugate, &complex, &negative, &part}) writer.tensor(*tensor);
  const auto command = sent(writer);

  ArgumentReader reader(command);
  EXPECT_TRUE(reader.tensor().is_conj());
  EXPECT_FALSE(reader.tensor().is_conj());
  EXPECT_TRUE(reader.tensor().is_neg());
  EXPECT_FALSE(reader.tensor().is_neg());
}

TEST(Arguments, AnOutputWhoseMarksAKernelTookAwayHasThemAgain) {
  const auto complex = empty_on(kDevice, {2}, at::kComplexFloat);
  ArgumentWriter writer(kernel.name(), kDevice);
  writer.tensor(at::imag(complex.conj()), Access::kWrite);
  const auto command = sent(writer);

  ArgumentReader reader(command);
  const auto& output = reader.tensor();
  output._set_neg(false);
  output.fill_(3);
  reader.write_back_outputs();
  EXPECT_TRUE(output.is_neg());
  EXPECT_TRUE(at::equal(output, at::full({2}, 3.0, at::kFloat)));
  const auto* const memory = static_cast<const float*>(output.storage().data());
  EXPECT_EQ(memory[1], -3);
  EXPECT_EQ(memory[3], -3);
}

TEST(Arguments, UndefinedTensorsAndLists) {
  const auto tensor = empty_on(kDevice, {3}, at::kFloat);
  const std::vector<at::Tensor> list{tensor, tensor};
  ArgumentWriter writer(kernel.name(), kDevice);
  writer.tensor(at::Tensor());
  Argument<std::optional<at::Tensor>>::write(writer, std::nullopt);
  Argument<at::ITensorListRef>::write(writer, at::ITensorListRef(list));
  const auto command = sent(writer);

  ArgumentReader reader(command);
  EXPECT_FALSE(reader.tensor().defined());
  EXPECT_FALSE(Argument<std::optional<at::Tensor>>::read(reader).has_value());
  EXPECT_EQ(Argument<at::ITensorListRef>::read(reader).size(), 2);
}

TEST(Arguments, ACommandReportsWhatItReadsAndWrites) {
  const auto in = empty_on(kDevice, {8}, at::kFloat);
  const auto out = empty_on(kDevice, {8}, at::kDouble);
  ArgumentWriter writer(kernel.name(), kDevice);
  writer.tensor(in);
  writer.tensor(at::ones({}));
  writer.tensor(out, Access::kWrite);

  const CommandView view(writer.finish());
  const auto tensors = view.tensors();
  ASSERT_EQ(tensors.size(), 3);
  const auto address = [&](const TensorRecord& tensor) {
    return reinterpret_cast<const void*>(view.storage(tensor).pointer);
  };
  EXPECT_EQ(address(tensors[0]), in.storage().data());
  EXPECT_FALSE(view.shape(tensors[0]).flags & kWritten);
  EXPECT_TRUE(view.shape(tensors[1]).flags & kPayload);
  EXPECT_EQ(address(tensors[2]), out.storage().data());
  EXPECT_EQ(view.storage(tensors[2]).nbytes, 64);
  EXPECT_EQ(view.shape(tensors[2]).type(), at::kDouble);
  EXPECT_TRUE(view.shape(tensors[2]).flags & kWritten);
}

TEST(Arguments, TensorsOfOtherDevicesAreRefused) {
  ArgumentWriter writer("aten::mm", kDevice);
  const auto other = empty_on(c10::Device(backend::kDeviceType, 1), {2}, at::kFloat);
  EXPECT_THROW(writer.tensor(other), c10::Error);
  EXPECT_THROW(writer.tensor(at::ones({2})), c10::Error);
  EXPECT_THROW(writer.tensor(at::ones({}), Access::kWrite), c10::Error);
}

TEST(Arguments, ACommandDoesNotReachBeyondAStorage) {
  const auto tensor = empty_on(kDevice, {4, 6}, at::kFloat);
  const auto write = [](const at::Tensor& argument) {
    ArgumentWriter writer(kernel.name(), kDevice);
    writer.tensor(argument);
    return writer.finish().size();
  };
  const auto part = tensor.slice(0, 1, 3).slice(1, 1, 6, 2);  // its last element is the 18th
  const auto none = tensor.slice(0, 4, 4);
  backend::resize_storage(tensor.storage(), 18 * sizeof(float));
  EXPECT_NO_THROW(write(part));
  EXPECT_THROW(write(tensor), c10::Error);
  EXPECT_THROW(write(tensor.t()), c10::Error);
  backend::resize_storage(tensor.storage(), 18 * sizeof(float) - 1);
  EXPECT_THROW(write(part), c10::Error);
  EXPECT_NO_THROW(write(none));
}

// An output may be given its memory after another view of its storage has been written.
TEST(Arguments, AStorageThatGrowsMeanwhileIsAsLongAsItIs) {
  const auto base = empty_on(kDevice, {4}, at::kFloat);
  const auto output = base.slice(0, 2, 4);
  ArgumentWriter writer(kernel.name(), kDevice);
  writer.tensor(base.slice(0, 0, 2));
  output.resize_({100});
  writer.tensor(output, Access::kWrite);
  EXPECT_NO_THROW(writer.finish());
}

TEST(Arguments, SharingIsSeenWhereOneIsWritten) {
  const auto tensor = empty_on(kDevice, {4}, at::kFloat);
  const auto front = tensor.narrow(0, 0, 2);
  const auto back = tensor.narrow(0, 2, 2);
  ArgumentWriter reading(kernel.name(), kDevice);
  reading.tensor(front);
  reading.tensor(back);
  EXPECT_FALSE(reading.shares_written_memory());
  for (const bool first : {true, false}) {
    ArgumentWriter writer(kernel.name(), kDevice);
    writer.tensor(front, first ? Access::kWrite : Access::kRead);
    writer.tensor(back, first ? Access::kRead : Access::kWrite);
    EXPECT_TRUE(writer.shares_written_memory());
  }
  ArgumentWriter in_place(kernel.name(), kDevice);  // as structured operators write their arguments
  in_place.tensor(front);
  in_place.tensor(back);
  in_place.tensor(front, Access::kWrite);
  EXPECT_TRUE(in_place.shares_written_memory());
  ArgumentWriter alone(kernel.name(), kDevice);
  alone.tensor(front);
  alone.tensor(front, Access::kWrite);
  EXPECT_FALSE(alone.shares_written_memory());
}

TEST(Arguments, TheSignatureDependsOnTheDistanceOfSharedMemoryAndNotOnItsPlace) {
  const auto tensor = empty_on(kDevice, {12}, at::kFloat);
  const auto hash = [&](std::int64_t written_at, std::int64_t read_at) {
    const auto written = tensor.narrow(0, written_at, 4);
    const auto read = tensor.narrow(0, read_at, 4);
    ArgumentWriter writer(kernel.name(), kDevice);
    writer.tensor(written, Access::kWrite);
    writer.tensor(read);
    return writer.signature(&kernel).hash;
  };
  EXPECT_EQ(hash(0, 4), hash(4, 8));
  EXPECT_NE(hash(0, 4), hash(0, 2));
  EXPECT_NE(hash(0, 4), hash(4, 0));
}

TEST(Arguments, WrittenMemoryThatOverlapsIsFound) {
  const auto overlaps = [](const at::Tensor& written, const at::Tensor& read) {
    ArgumentWriter writer(kernel.name(), kDevice);
    writer.tensor(read);
    writer.tensor(written, Access::kWrite);
    return writer.written_memory_overlaps();
  };
  const auto x = empty_on(kDevice, {4, 4}, at::kFloat);
  EXPECT_FALSE(overlaps(x.select(0, 0), x.select(0, 1)));
  EXPECT_FALSE(overlaps(x, x));  // the same tensor, as with in-place operators
  EXPECT_TRUE(overlaps(x.narrow(0, 0, 2), x.narrow(0, 1, 2)));
  EXPECT_TRUE(overlaps(x, x.view({16})));
  EXPECT_TRUE(overlaps(x.select(0, 0).expand({3, 4}), empty_on(kDevice, {4}, at::kFloat)));
}

}  // namespace
}  // namespace openreg::ops
