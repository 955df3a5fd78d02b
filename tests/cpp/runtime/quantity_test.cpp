#include "base/quantity.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace openreg {
namespace {

TEST(Quantity, ASizeHasTheLargestUnitOfWhichThereIsOne) {
  EXPECT_EQ(format_size(0), "0 bytes");
  EXPECT_EQ(format_size(1), "1 byte");
  EXPECT_EQ(format_size(2), "2 bytes");
  EXPECT_EQ(format_size(1023), "1023 bytes");
  EXPECT_EQ(format_size(1024), "1.00 KiB");
  EXPECT_EQ(format_size(1536), "1.50 KiB");
  EXPECT_EQ(format_size(20ULL << 20), "20.00 MiB");
  EXPECT_EQ(format_size(512ULL << 30), "512.00 GiB");
  EXPECT_EQ(format_size(16ULL << 40), "16.00 TiB");
  EXPECT_EQ(format_size(3ULL << 50), "3.00 PiB");
}

TEST(Quantity, TheLargestSizesHaveNoExponent) {
  EXPECT_EQ(format_size(std::numeric_limits<std::int64_t>::max()), "8.00 EiB");
  EXPECT_EQ(format_size(std::numeric_limits<std::uint64_t>::max()), "16.00 EiB");
}

TEST(Quantity, ASizeIsNever1024OfAUnit) {
  EXPECT_EQ(format_size((1ULL << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_size((1ULL << 20) - 6), "1023.99 KiB");
  EXPECT_EQ(format_size((1ULL << 40) - 1), "1.00 TiB");
  for (int shift = 0; shift < 64; ++shift) {
    for (const std::uint64_t nearby : {0, 1, -1}) {
      const std::uint64_t bytes = (std::uint64_t{1} << shift) + nearby;
      const std::string text = format_size(bytes);
      EXPECT_EQ(text.find("e+"), std::string::npos) << text;
      EXPECT_LT(std::stod(text), 1024) << text;
      EXPECT_GE(std::stod(text), bytes == 0 ? 0 : 1) << text;
    }
  }
}

TEST(Quantity, ACountOfOneIsSingular) {
  EXPECT_EQ(format_count(0, "block"), "0 blocks");
  EXPECT_EQ(format_count(1, "block"), "1 block");
  EXPECT_EQ(format_count(2, "block"), "2 blocks");
  EXPECT_EQ(format_count(std::numeric_limits<std::uint64_t>::max(), "byte"),
            "18446744073709551615 bytes");
}

}  // namespace
}  // namespace openreg
