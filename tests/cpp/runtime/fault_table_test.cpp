#include "runtime/fault_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

/// Armed for a scope.
class Armed {
 public:
  explicit Armed(const char* text) : fault_(faults::arm(FaultSpec::parse(text))) {}
  ~Armed() { faults::disarm(fault_); }
  Armed(const Armed&) = delete;
  Armed& operator=(const Armed&) = delete;

  const std::shared_ptr<ArmedFault>& operator*() const { return fault_; }
  ArmedFault* operator->() const { return fault_.get(); }

 private:
  const std::shared_ptr<ArmedFault> fault_;
};

/// The numbers of the launches that fail, of so many.
std::vector<int> failing(int launches, const char* name = "aten::mm", int device = 0) {
  std::vector<int> numbers;
  for (int i = 1; i <= launches; ++i) {
    const auto firings =
        faults::count_event({.point = FaultPoint::kLaunch, .name = name, .device = device});
    if (!firings.empty()) numbers.push_back(i);
  }
  return numbers;
}

TEST(FaultTable, IsEmptyWithoutFaults) {
  EXPECT_FALSE(faults::any());
  {
    const Armed fault("error@launch:1");
    EXPECT_TRUE(faults::any());
  }
  EXPECT_FALSE(faults::any());
  EXPECT_TRUE(failing(3).empty());
}

TEST(FaultTable, TheOrdinalDecides) {
  const Armed fault("error@launch:3");
  EXPECT_EQ(failing(10), std::vector{3});
  EXPECT_EQ(fault->counts().counted, 10U);
  EXPECT_EQ(fault->counts().fired, 1U);
  EXPECT_EQ(fault->counts().where, std::vector<std::string>{"launch 3 (aten::mm) on openreg:0"});
}

TEST(FaultTable, TimesIsHowManyFollow) {
  const Armed fault("error@launch:3,times=2");
  EXPECT_EQ(failing(10), (std::vector{3, 4}));
}

TEST(FaultTable, AStarIsEach) {
  const Armed fault("error@launch:*");
  EXPECT_EQ(failing(3), (std::vector{1, 2, 3}));
}

TEST(FaultTable, EachFaultCountsWhatItIsAbout) {
  const Armed mm("error@aten::mm:2");
  const Armed overload("error@aten::add.out:1");
  const Armed device("error@launch:1,device=1");
  const Armed pattern("error@launch:1,match=cpp_fused_*");
  EXPECT_EQ(failing(3, "aten::mm.out"), std::vector{2});
  EXPECT_TRUE(failing(3, "aten::add").empty());
  EXPECT_EQ(failing(3, "aten::add.out"), std::vector{1});
  EXPECT_EQ(failing(3, "aten::div", 1), std::vector{1});
  EXPECT_EQ(failing(3, "cpp_fused_add_0"), std::vector{1});
  EXPECT_EQ(pattern->counts().counted, 3U);
  EXPECT_EQ(device->counts().counted, 3U);
}

TEST(FaultTable, AnOperatorHasAllItsForms) {
  const Armed functional("error@aten::add:2");
  const Armed in_place("error@aten::add_:2");
  EXPECT_TRUE(failing(1, "aten::add.Tensor").empty());
  EXPECT_EQ(failing(1, "aten::add_.Tensor"), std::vector{1});
  EXPECT_EQ(in_place->counts().fired, 1U);
  const Armed special("error@aten::__and__");
  EXPECT_TRUE(failing(1, "aten::__and_").empty());
  EXPECT_EQ(failing(1, "aten::__and__.Tensor"), std::vector{1});
}

TEST(FaultTable, OnlyItsRankCounts) {
  const Armed fault("error@collective:1,rank=1");
  const auto fires = [](int rank) {
    return !faults::count_event(
                {.point = FaultPoint::kCollective, .name = "occl::send", .rank = rank})
                .empty();
  };
  EXPECT_FALSE(fires(0));
  EXPECT_TRUE(fires(1));
}

/// A process as torchrun starts it.
class Launched {
 public:
  Launched(const char* rank, const char* restart) {
    setenv("RANK", rank, 1);
    setenv("TORCHELASTIC_RESTART_COUNT", restart, 1);
  }
  ~Launched() {
    unsetenv("RANK");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
  }
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;
};

/// Whether the fault of a command occurs in this process.
bool occurs(const char* text) {
  const Armed fault(text);
  return !failing(1).empty();
}

TEST(FaultTable, OnlyTheRankOfTheProcessCountsLaunches) {
  EXPECT_FALSE(occurs("error@launch:1,rank=0"));  // it has no rank
  const Launched process("3", "0");
  EXPECT_TRUE(occurs("error@launch:1,rank=3"));
  EXPECT_FALSE(occurs("error@launch:1,rank=0"));
  const Armed of_a_group("error@collective:1,rank=0");
  EXPECT_EQ(faults::count_event({.point = FaultPoint::kCollective, .rank = 0}).size(), 1U);
}

TEST(FaultTable, OnlyItsRunOfARestartedProcessCounts) {
  EXPECT_TRUE(occurs("error@launch:1,restart=0"));  // without a launcher
  EXPECT_FALSE(occurs("error@launch:1,restart=1"));
  {
    const Launched restarted("0", "1");
    EXPECT_FALSE(occurs("error@launch:1,restart=0"));
    EXPECT_TRUE(occurs("error@launch:1,restart=1"));
  }
  const Launched odd("0", "first");
  EXPECT_TRUE(occurs("error@launch:1,restart=0"));
}

TEST(FaultTable, CorruptionCountsWhatWritesKnownMemory) {
  const Armed fault("corrupt@launch:1");
  EXPECT_TRUE(failing(3).empty());
  EXPECT_EQ(faults::count_event({.point = FaultPoint::kLaunch, .can_corrupt = true}).size(), 1U);
}

TEST(FaultTable, ASeedRepeatsChance) {
  const auto run = [] {
    const Armed fault("error@launch,probability=0.3,seed=42");
    return failing(100);
  };
  const auto first = run();
  EXPECT_GT(first.size(), 10U);
  EXPECT_LT(first.size(), 60U);
  EXPECT_EQ(run(), first);
  const Armed other("error@launch,probability=0.3,seed=43");
  EXPECT_NE(failing(100), first);
}

TEST(FaultTable, ADrawnSeedIsPrinted) {
  ::testing::internal::CaptureStderr();
  const Armed fault("error@launch,probability=0.5");
  const auto text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text, "openreg: fault error@launch,probability=0.5: random seed=" +
                      std::to_string(fault->seed()) + "\n");
}

TEST(FaultTable, SeveralMayOccurAtOnce) {
  const Armed slow("slow@launch:2=1ms");
  const Armed error("error@launch:2");
  EXPECT_TRUE(faults::count_event({.point = FaultPoint::kLaunch}).empty());
  EXPECT_EQ(faults::count_event({.point = FaultPoint::kLaunch}).size(), 2U);
}

TEST(FaultTable, TheSummarySaysWhatFiredAndWhatDidNot) {
  static int runs = 0;  // earlier ones are in the summary too
  const std::string name = "test::op" + std::to_string(++runs);
  const std::string spec = "error@" + name + ":2";
  const std::string other = "error@" + name + ".other:5";
  const Armed fired(spec.c_str());
  const Armed never(other.c_str());
  failing(3, name.c_str());
  const auto text = faults::summary();
  EXPECT_PRED2(
      contains, text,
      "  " + spec + ": fired 1 time, first at call 2 (" + name + ") on openreg:0; 3 counted\n");
  EXPECT_PRED2(contains, text, "  " + other + ": never fired; 0 counted\n");
}

TEST(FaultTable, ThreadsCountTogether) {
  const Armed fault("error@launch:500,times=100");
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { failures += static_cast<int>(failing(250).size()); });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures, 100);
  EXPECT_EQ(fault->counts().counted, 1000U);
}

TEST(FaultTable, AHangingStreamGoesOnWhenTheFaultIsDisarmed) {
  const OwnStream stream;
  std::atomic<bool> ran{false};
  {
    const Armed fault("hang@launch");
    fault->hang(*stream);
    enqueue(*stream, [&] { ran = true; });
    EXPECT_FALSE(stream->query());
    EXPECT_FALSE(ran);
  }
  stream->synchronize();
  EXPECT_TRUE(ran);
}

TEST(FaultTable, OneDevicesHangsEndAlone) {
  const OwnStream here(0);
  const OwnStream there(1);
  const Armed fault("hang@launch:*");
  fault->hang(*here);
  fault->hang(*there);
  faults::release_hung(1);
  there->synchronize();
  EXPECT_FALSE(here->idle());
}

TEST(FaultTable, NothingHangsAfterTheFaultWasDisarmed) {
  const OwnStream stream;
  const auto fault = faults::arm(FaultSpec::parse("hang@launch"));
  faults::disarm(fault);
  fault->hang(*stream);
  stream->synchronize();
}

TEST(FaultTable, HangsThatBeginWhileTheFaultEndsEndToo) {
  const OwnStream stream;
  for (int i = 0; i < 300; ++i) {
    const auto fault = faults::arm(FaultSpec::parse("hang@launch:*"));
    std::thread hanging([&] { fault->hang(*stream); });
    faults::disarm(fault);
    hanging.join();
    stream->synchronize();
  }
}

}  // namespace
}  // namespace openreg
