#include "ops/wire/extent.h"

#include <gtest/gtest.h>

namespace openreg::ops {
namespace {

TEST(Reach, ElementsThatShareAByteAreCountedTogether) {
  EXPECT_EQ(bytes_of(9, c10::kFloat), 36);
  EXPECT_EQ(bytes_of(8, c10::kQUInt4x2), 4);
  EXPECT_EQ(bytes_of(9, c10::kQUInt4x2), 5);
  EXPECT_EQ(bytes_of(8, c10::kQUInt2x4), 2);
  EXPECT_EQ(bytes_of(9, c10::kQUInt2x4), 3);
  EXPECT_EQ(bytes_of(0, c10::kQUInt2x4), 0);
}

}  // namespace
}  // namespace openreg::ops
