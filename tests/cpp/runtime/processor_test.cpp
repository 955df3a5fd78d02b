#include "base/processor.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace openreg {
namespace {

constexpr float kLeastNormal = std::numeric_limits<float>::min();

// Computed here and now, in the mode that the thread has: no compiler may do it elsewhere.
float half_of(float value) {
  const volatile float whole = value;
  const volatile float half = whole / 2;
  return half;
}

float four_times(float value) {
  const volatile float quarter = value;
  const volatile float whole = quarter * 4;
  return whole;
}

TEST(Processor, DenormalResultsAreZeroOnlyWhileTheyAreFlushed) {
  EXPECT_FALSE(flush_denormals());
  EXPECT_EQ(half_of(kLeastNormal), kLeastNormal / 2);
  set_flush_denormals(true);
  const bool on = flush_denormals();
  const float flushed = half_of(kLeastNormal);
  set_flush_denormals(false);
  EXPECT_TRUE(on);
  EXPECT_EQ(flushed, 0.0F);
  EXPECT_FALSE(flush_denormals());
  EXPECT_EQ(half_of(kLeastNormal), kLeastNormal / 2);
}

TEST(Processor, DenormalArgumentsCountAsZeroWhileTheyAreFlushed) {
  constexpr float kDenormal = kLeastNormal / 2;
  set_flush_denormals(true);
  const float flushed = four_times(kDenormal);
  set_flush_denormals(false);
  EXPECT_EQ(flushed, 0.0F);
  EXPECT_EQ(four_times(kDenormal), kLeastNormal * 2);
}

TEST(Processor, TheModeIsTheThreadsOwn) {
  float elsewhere = 0;
  set_flush_denormals(true);
  std::thread([&] {
    set_flush_denormals(false);
    elsewhere = half_of(kLeastNormal);
  }).join();
  const bool kept = flush_denormals();
  set_flush_denormals(false);
  EXPECT_EQ(elsewhere, kLeastNormal / 2);
  EXPECT_TRUE(kept);
}

}  // namespace
}  // namespace openreg
