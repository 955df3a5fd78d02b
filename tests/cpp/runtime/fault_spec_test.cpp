#include "base/fault_spec.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "../text.h"
#include "base/error.h"

namespace openreg {
namespace {

using testing::contains;

using namespace std::chrono_literals;

std::string error_of(const std::string& text) {
  try {
    FaultSpec::parse(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(FaultSpec, AnOrdinalIsTheOneThatFails) {
  const auto spec = FaultSpec::parse("oom@allocation:100");
  EXPECT_EQ(spec.kind, FaultKind::kOutOfMemory);
  EXPECT_EQ(spec.point, FaultPoint::kAllocation);
  EXPECT_EQ(spec.first, 100U);
  EXPECT_EQ(spec.times, 1U);
  EXPECT_EQ(spec.text, "oom@allocation:100");
}

TEST(FaultSpec, WithoutAnOrdinalItIsTheFirst) {
  const auto spec = FaultSpec::parse("lost@launch");
  EXPECT_EQ(spec.first, 1U);
  EXPECT_EQ(spec.times, 1U);
}

TEST(FaultSpec, AStarIsEach) {
  const auto spec = FaultSpec::parse("slow@copy:*=2ms");
  EXPECT_EQ(spec.delay, 2ms);
  EXPECT_EQ(spec.first, 1U);
  EXPECT_FALSE(spec.times.has_value());
}

TEST(FaultSpec, AProbabilityHasNoLimit) {
  EXPECT_FALSE(FaultSpec::parse("error@launch,probability=0.5").times.has_value());
  EXPECT_EQ(FaultSpec::parse("error@launch,probability=0.5,times=3").times, 3U);
}

TEST(FaultSpec, TheColonsOfAnOperatorAreNotThoseOfAnOrdinal) {
  const auto every = FaultSpec::parse("error@aten::mm");
  EXPECT_EQ(every.point, FaultPoint::kOperator);
  EXPECT_EQ(every.op, "aten::mm");
  EXPECT_EQ(every.first, 1U);
  const auto third = FaultSpec::parse("error@aten::add.Tensor:3");
  EXPECT_EQ(third.op, "aten::add.Tensor");
  EXPECT_EQ(third.first, 3U);
}

TEST(FaultSpec, TimesHaveUnits) {
  EXPECT_EQ(FaultSpec::parse("slow@launch=1.5s").delay, 1500ms);
  EXPECT_EQ(FaultSpec::parse("slow@launch=20us").delay, 20us);
  EXPECT_EQ(FaultSpec::parse("slow@launch=7ns").delay, 7ns);
}

TEST(FaultSpec, OptionsNarrowIt) {
  const auto spec = FaultSpec::parse(
      "exit@collective:7, rank=1, device=0, match=occl::all*, times=2, probability=0.25, seed=9");
  EXPECT_EQ(spec.rank, 1);
  EXPECT_EQ(spec.device, 0);
  EXPECT_EQ(spec.match, "occl::all*");
  EXPECT_EQ(spec.times, 2U);
  EXPECT_EQ(spec.probability, 0.25);
  EXPECT_EQ(spec.seed, 9U);
  const auto first_run = FaultSpec::parse("oom@allocation:7,rank=1,restart=0");
  EXPECT_EQ(first_run.rank, 1);
  EXPECT_EQ(first_run.restart, 0);
}

TEST(FaultSpec, SeparateOptionsMayContainCommas) {
  EXPECT_EQ(FaultSpec::parse("error@launch:*", {"match=a,b;c"}).match, "a,b;c");
}

TEST(FaultSpec, AListHasSemicolonsAndSpaces) {
  const auto specs = FaultSpec::parse_list(" oom@allocation:1 ; ;hang@collective:4;");
  ASSERT_EQ(specs.size(), 2U);
  EXPECT_EQ(specs[1].kind, FaultKind::kHang);
  EXPECT_TRUE(FaultSpec::parse_list("").empty());
}

TEST(FaultSpec, ErrorsSayWhatIsExpected) {
  EXPECT_EQ(error_of("oom"),
            "openreg: invalid fault: no place (got \"oom\", expected KIND@PLACE, such as "
            "oom@allocation:100)");
  EXPECT_EQ(error_of("boom@launch"),
            "openreg: invalid fault: unknown kind (got \"boom\", expected oom, error, corrupt, "
            "slow, hang, lost, exit or crash)");
  EXPECT_EQ(error_of("oom@launch"),
            "openreg: invalid fault: no such place for \"oom\" (got \"launch\", expected "
            "allocation or pin)");
  EXPECT_PRED2(contains, error_of("hang@mm"), "or an operator's name such as aten::mm");
  EXPECT_PRED2(contains, error_of("error@aten::mm:0"), "expected a number from 1, or *");
  EXPECT_PRED2(contains, error_of("error@launch:"), "got \"\", expected a number from 1, or *");
  EXPECT_PRED2(contains, error_of("error@launch:-1"), "got \"-1\"");
  EXPECT_PRED2(contains, error_of("slow@copy"), "slow@PLACE=TIME");
  EXPECT_PRED2(contains, error_of("slow@copy=2"), "a number with ns, us, ms or s");
  EXPECT_PRED2(contains, error_of("slow@copy=-2ms"), "malformed time");
  EXPECT_PRED2(contains, error_of("slow@copy=1e300s"), "malformed time");
  EXPECT_PRED2(contains, error_of("error@copy=2ms"), "a time is for \"slow\" only");
  EXPECT_PRED2(contains, error_of("error@launch,probability=0"), "above 0, at most 1");
  EXPECT_PRED2(contains, error_of("error@launch,probability=nan"), "above 0, at most 1");
  EXPECT_PRED2(contains, error_of("oom@allocation,match=a"), "unsupported option");
  EXPECT_PRED2(contains, error_of("oom@allocation,match=a"),
               "device, times, probability, seed, rank or restart");
  EXPECT_PRED2(contains, error_of("error@launch,match="), "empty pattern");
  EXPECT_PRED2(contains, error_of("error@launch,seed=x"), "a number below 2^64");
  EXPECT_PRED2(contains, error_of("error@launch,times=0"), "a number from 1");
  EXPECT_PRED2(contains, error_of("exit@collective,rank=-1"), "a number from 0");
  EXPECT_PRED2(contains, error_of("oom@allocation,restart=one"), "malformed restart");
  EXPECT_PRED2(contains, error_of("error@launch,times=1,times=2"), "repeated option");
}

TEST(FaultSpec, WhatCanNeverOccurIsRefused) {
  for (const auto* const place : {"aten::mm:2:3", "aten::", "::", "::mm", "a b::mm", "aten::m m"})
    EXPECT_PRED2(contains, error_of(std::string("error@") + place), "no such place for \"error\"")
        << place;
  EXPECT_PRED2(contains, error_of("oom@pin,device=0"), "unsupported option");
  EXPECT_PRED2(contains, error_of("error@compile,device=0"), "unsupported option");
}

TEST(FaultSpec, AProbabilityHasNoLimitEvenIfItIsOne) {
  EXPECT_FALSE(FaultSpec::parse("error@launch,probability=1").times.has_value());
  EXPECT_FALSE(FaultSpec::parse("error@launch:5,probability=1.0").times.has_value());
  EXPECT_EQ(FaultSpec::parse("error@launch").times, 1U);
}

}  // namespace
}  // namespace openreg
