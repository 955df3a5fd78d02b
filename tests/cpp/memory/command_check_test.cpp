#include "memory/command_check.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "../runtime/stream_helpers.h"
#include "base/error.h"
#include "runtime/stream.h"

namespace openreg::memory {
namespace {

using namespace openreg::testing;

/// A check of one's own, which counts.
class Counting final : public CommandCheck {
 public:
  std::string before_allocation(Stream&) override { return refuses ? "no memory today" : ""; }
  void allocated(const NewBlock& made) override { bytes += made.bytes; }
  void freed(const void*, Where*) override { ++frees; }
  void used_by_stream(const void*, Stream&) override { ++users; }
  void before_enqueue(Launch& launch) override {
    ++launches;
    if (refuses) throw Error(std::string("no ") + launch.name);
  }
  void before_replay(Launch&) override { ++replays; }
  void enqueued(Launch&) override { ++enqueues; }
  void withdrawn(Launch&) override { ++withdrawals; }

  bool refuses = false;
  std::size_t bytes = 0;
  int frees = 0, users = 0, launches = 0, replays = 0, enqueues = 0, withdrawals = 0;
};

class CommandCheckTest : public ::testing::Test {
 protected:
  void SetUp() override { checks::add(check, checks::kOwn); }
  void TearDown() override { checks::remove(checks::kOwn); }

  void launch() {
    Launch made{.stream = *stream, .name = empty_kernel().name()};
    checks::enqueue_checked(made, [&] { enqueue_nothing(*stream); });
  }

  OwnStream stream;
  Counting check;
};

TEST_F(CommandCheckTest, IsAskedAboutLaunchesAndReplays) {
  EXPECT_TRUE(checks::any());
  launch();
  Launch run{.stream = *stream, .name = "graph", .graph = 1};
  checks::enqueue_checked(run, [&] { enqueue_nothing(*stream); });
  EXPECT_EQ(check.launches, 1);
  EXPECT_EQ(check.replays, 1);
  EXPECT_EQ(check.enqueues, 2);
  checks::remove(checks::kOwn);
  EXPECT_FALSE(checks::any());
  launch();
  EXPECT_EQ(check.launches, 1);
}

TEST_F(CommandCheckTest, WithdrawsWhatIsNotEnqueued) {
  Launch failing{.stream = *stream, .name = "test"};
  EXPECT_THROW(
      checks::enqueue_checked(failing, [] { throw std::runtime_error("the queue is full"); }),
      std::runtime_error);
  EXPECT_EQ(check.withdrawals, 1);
  check.refuses = true;
  Counting later;
  checks::add(later, checks::kOwn + 1);
  EXPECT_EQ(error_of([&] { launch(); }), "no " + std::string(empty_kernel().name()));
  checks::remove(checks::kOwn + 1);
  EXPECT_EQ(check.withdrawals, 2);
  EXPECT_EQ(check.enqueues, 0);
  EXPECT_EQ(later.launches + later.withdrawals, 0);
}

TEST_F(CommandCheckTest, IsAskedAboutMemory) {
  DeviceHeap heap{0};
  const auto where = [] { return std::string("the test"); };
  std::string refusal;
  void* const address = checks::allocate(heap, 1000, *stream, where, {}, refusal).address;
  ASSERT_NE(address, nullptr);
  checks::record_stream(heap, address, *stream);
  checks::free(heap, address, where);
  EXPECT_EQ(check.bytes, 1000U);
  EXPECT_EQ(check.users, 1);
  EXPECT_EQ(check.frees, 1);
  check.refuses = true;
  EXPECT_EQ(checks::allocate(heap, 1000, *stream, where, {}, refusal).address, nullptr);
  EXPECT_EQ(refusal, "no memory today");
}

}  // namespace
}  // namespace openreg::memory
