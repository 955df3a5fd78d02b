#include "base/command.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "stream_helpers.h"

namespace openreg {
namespace {

using testing::error_of;

struct AddArguments {
  std::uint64_t device_pointer;
  std::int64_t sizes[2];
  double value;
};

double g_sum = 0;
const Kernel& add_kernel() {
  static const Kernel kernel(
      "command_test_add", [](const Kernel&, std::span<const std::byte> bytes) {
        AddArguments arguments;
        std::memcpy(&arguments, bytes.data(), sizeof arguments);
        g_sum += arguments.value * static_cast<double>(arguments.sizes[0] * arguments.sizes[1]);
      });
  return kernel;
}

TEST(Command, IsEncodedAndDecoded) {
  const AddArguments arguments{0x7f0000000000, {3, 4}, 2.5};
  const auto bytes = encode(add_kernel(), std::as_bytes(std::span(&arguments, 1)));
  const Command command = decode(bytes);
  EXPECT_EQ(command.kernel, &add_kernel());
  ASSERT_EQ(command.arguments.size(), sizeof arguments);
  EXPECT_EQ(std::memcmp(command.arguments.data(), &arguments, sizeof arguments), 0);
  g_sum = 0;
  default_stream(0).enqueue(*command.kernel, command.arguments);
  default_stream(0).synchronize();
  EXPECT_EQ(g_sum, 30.0);
}

TEST(Command, WithoutArgumentsIsEncodedAndDecoded) {
  const Command command = decode(encode(testing::empty_kernel(), {}));
  EXPECT_EQ(command.kernel, &testing::empty_kernel());
  EXPECT_TRUE(command.arguments.empty());
}

TEST(Command, OtherBytesAreRefused) {
  auto bytes = encode(add_kernel(), std::as_bytes(std::span("12345678")));
  bytes.pop_back();
  EXPECT_EQ(error_of([&] { decode(bytes); }),
            "openreg: these bytes are not a command that encode() returned (got 32 bytes)");
  EXPECT_EQ(error_of([&] { decode({}); }),
            "openreg: these bytes are not a command that encode() returned (got 0 bytes)");
}

TEST(Kernel, AnIdDependsOnTheNameOnly) {
  EXPECT_EQ(add_kernel().id(), 0x17da4a5189d1ea8fu);
  EXPECT_EQ(Kernel::find(add_kernel().id()), &add_kernel());
  EXPECT_EQ(Kernel::find(1), nullptr);
}

TEST(Kernel, ASecondOneOfTheSameNameIsRefused) {
  add_kernel();
  EXPECT_EQ(error_of([] { Kernel again("command_test_add", nullptr); }),
            "openreg: kernel names must be unique and have unique hashes (got \"command_test_add\" "
            "beside \"command_test_add\")");
}

TEST(Kernel, TheThreadKnowsThatItRunsACommand) {
  EXPECT_FALSE(in_command());
  bool inside = false;
  testing::enqueue(default_stream(0), [&] { inside = in_command(); });
  default_stream(0).synchronize();
  EXPECT_TRUE(inside);
  EXPECT_FALSE(in_command());
}

}  // namespace
}  // namespace openreg
