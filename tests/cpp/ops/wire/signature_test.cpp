#include "ops/wire/signature.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "../test_device.h"
#include "backend/device.h"
#include "ops/tensors/factories.h"
#include "ops/wire/argument_writer.h"

namespace openreg::ops {
namespace {

const int kKernel = 0;

/// The signature of a call with these arguments.
template <class... Write>
Signature signature_of(Write... write) {
  ArgumentWriter writer("aten::add", kDevice);
  (write(writer), ...);
  return Signature(writer.signature(&kKernel));
}

template <class... Write>
bool same(const Signature& signature, Write... write) {
  ArgumentWriter writer("aten::add", kDevice);
  (write(writer), ...);
  return signature == writer.signature(&kKernel);
}

auto tensor(const at::Tensor& t) {
  return [t](ArgumentWriter& writer) { writer.tensor(t); };
}
auto number(const c10::Scalar& n) {
  return [n](ArgumentWriter& writer) { writer.number(n); };
}

TEST(SignatureTest, CallsOfTheSameShapesAreTheSameWhateverTheirMemory) {
  const auto first = signature_of(tensor(floats({4, 6})), tensor(floats({6})));
  EXPECT_TRUE(same(first, tensor(floats({4, 6})), tensor(floats({6}))));
  const auto rows = floats({8, 6});
  EXPECT_TRUE(same(first, tensor(rows.narrow(0, 4, 4)), tensor(floats({6}))));  // with an offset
}

TEST(SignatureTest, SizesStridesDtypesAndAliasesTellCallsApart) {
  const auto a = floats({4, 6});
  const auto first = signature_of(tensor(a), tensor(floats({4, 6})));
  EXPECT_FALSE(same(first, tensor(a), tensor(floats({5, 6}))));
  EXPECT_FALSE(same(first, tensor(a), tensor(floats({6, 4}).t())));
  EXPECT_FALSE(same(first, tensor(a), tensor(empty_on(kDevice, {4, 6}, at::kLong))));
  EXPECT_FALSE(same(first, tensor(a), tensor(a)));
  EXPECT_FALSE(same(first, tensor(a), tensor(a.view({4, 6}))));
  EXPECT_FALSE(same(first, tensor(a)));
}

TEST(SignatureTest, SignsTellNumbersApartAndOtherwiseOnlyThoseThatMayNotFit) {
  const auto bytes = empty_on(kDevice, {4}, at::kChar);
  const auto small = signature_of(tensor(bytes), number(5));
  EXPECT_TRUE(same(small, tensor(bytes), number(100)));
  EXPECT_FALSE(same(small, tensor(bytes), number(0)));
  EXPECT_FALSE(same(small, tensor(bytes), number(-5)));
  EXPECT_FALSE(same(small, tensor(bytes), number(300)));
  EXPECT_FALSE(same(small, tensor(bytes), number(5.0)));
  const auto large = signature_of(tensor(bytes), number(300));
  EXPECT_TRUE(same(large, tensor(bytes), number(300)));
  EXPECT_FALSE(same(large, tensor(bytes), number(301)));
}

TEST(SignatureTest, TheDtypesOfLaterTensorsCountForEarlierNumbers) {
  const auto with_bytes = signature_of(number(300), tensor(empty_on(kDevice, {4}, at::kChar)));
  const auto with_longs = signature_of(number(300), tensor(empty_on(kDevice, {4}, at::kLong)));
  EXPECT_FALSE(same(with_bytes, number(301), tensor(empty_on(kDevice, {4}, at::kChar))));
  EXPECT_TRUE(same(with_longs, number(301), tensor(empty_on(kDevice, {4}, at::kLong))));
}

TEST(SignatureTest, NoNumberAndInfinityAreNumbersOfTheirOwn) {
  const auto x = floats({4});
  const auto ordinary = signature_of(tensor(x), number(2.5));
  EXPECT_FALSE(same(ordinary, tensor(x), number(std::numeric_limits<double>::infinity())));
  EXPECT_FALSE(same(ordinary, tensor(x), number(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_FALSE(same(ordinary, tensor(x), number(1e300)));
}

TEST(SignatureTest, IntegersAndPlainNumbersCountByTheirValue) {
  const auto with = [](auto value) {
    return [value](ArgumentWriter& writer) { writer.value(value); };
  };
  const auto first = signature_of(with(std::int64_t{3}), with(0.5));
  EXPECT_TRUE(same(first, with(std::int64_t{3}), with(0.5)));
  EXPECT_FALSE(same(first, with(std::int64_t{4}), with(0.5)));
  EXPECT_FALSE(same(first, with(std::int64_t{3}), with(0.25)));
  EXPECT_FALSE(same(first, with(std::optional<std::int64_t>(3)), with(0.5)));
}

TEST(SignatureTest, OffsetsCountWhereWrittenMemoryIsShared) {
  const auto x = floats({8});
  const auto call = [&](std::int64_t offset) {
    return [x, offset](ArgumentWriter& writer) {
      writer.tensor(writer.keep_alive(x.narrow(0, 0, 4)), Access::kWrite);
      writer.tensor(writer.keep_alive(x.narrow(0, offset, 4)));
    };
  };
  const auto apart = signature_of(call(4));
  EXPECT_TRUE(same(apart, call(4)));
  EXPECT_FALSE(same(apart, call(2)));
}

TEST(SignatureTest, EqualHashesAreNoEqualSignatures) {
  const std::uint64_t words[] = {1, 2, 3};
  const std::uint64_t others[] = {1, 2, 4};
  const Signature signature(make_signature(&kKernel, words));
  auto forged = make_signature(&kKernel, others);
  forged.hash = signature.hash();
  EXPECT_FALSE(signature == forged);
}

TEST(SignatureTest, SettingsOfTheProcessCount) {
  const auto x = floats({4});
  const auto before = signature_of(tensor(x));
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  EXPECT_FALSE(same(before, tensor(x)));
  at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  EXPECT_TRUE(same(before, tensor(x)));
}

SignatureView alike(ArgumentWriter& writer, c10::SmallVectorImpl<std::uint64_t>& words,
                    at::IntArrayRef first, at::IntArrayRef second) {
  const auto& a = writer.keep_alive(floats(first));
  writer.tensor(a);
  const auto b = floats(second);
  writer.tensor(b);
  return writer.signature(&kKernel, SignatureLevel::kEqualSizes, words);
}

bool are_alike(at::IntArrayRef a, at::IntArrayRef b, at::IntArrayRef c, at::IntArrayRef d) {
  ArgumentWriter first("aten::add", kDevice);
  ArgumentWriter second("aten::add", kDevice);
  c10::SmallVector<std::uint64_t, 16> words;
  c10::SmallVector<std::uint64_t, 16> other_words;
  const Signature signature(alike(first, words, a, b));
  return signature == alike(second, other_words, c, d);
}

TEST(SignatureTest, AlikeAreCallsWithSizesThatAreEqualInTheSamePlaces) {
  EXPECT_TRUE(are_alike({2, 3}, {3, 4}, {7, 5}, {5, 9}));
  EXPECT_FALSE(are_alike({2, 3}, {3, 4}, {2, 3}, {2, 4}));
  EXPECT_FALSE(are_alike({2, 3}, {3, 4}, {2, 3}, {3, 1}));
  EXPECT_FALSE(are_alike({2, 3}, {3, 0}, {2, 3}, {3, 1}));
}

}  // namespace
}  // namespace openreg::ops
