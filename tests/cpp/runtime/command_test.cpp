#include "runtime/command.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "runtime/run_slice.h"
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
