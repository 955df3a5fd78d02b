#include "address_space/ipc_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "../../text.h"
#include "../limit.h"

namespace openreg {
namespace {

using namespace testing;

constexpr std::size_t kBytes = std::size_t{8} << 20;
constexpr std::size_t kBlock = 3 * IpcFile::kBlockBytes;

// A process that does its part, reports that, and lives until it is asked to end or is killed.
class Other {
 public:
  explicit Other(const std::function<bool()>& part) {
    EXPECT_EQ(pipe(said_), 0);
    EXPECT_EQ(pipe(pipe_), 0);
    child_ = fork();
    if (child_ != 0) {
      close(pipe_[0]);
      EXPECT_EQ(read(said_[0], &done_, 1), 1);
      return;
    }
    close(pipe_[1]);  // otherwise the child would not notice the parent's end
    const char done = part() ? 'y' : 'n';
    if (write(said_[1], &done, 1) != 1) _exit(1);
    char any;
    _exit(read(pipe_[0], &any, 1) < 0 ? 1 : 0);
  }
  ~Other() {
    close(pipe_[1]);
    if (child_ > 0) waitpid(child_, nullptr, 0);
    for (const int end : {said_[0], said_[1]}) close(end);
  }

  bool did() const { return done_ == 'y'; }
  void kill() {
    ::kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  int said_[2] = {};
  int pipe_[2] = {};
  pid_t child_ = 0;
  char done_ = 0;
};

// What a receiver does with a message.
bool hold_and_receive(IpcFile& file, std::uint32_t generation) {
  file.hold(kBlock);
  return file.receive(kBlock, generation);
}

TEST(IpcFile, ABlockWithoutOtherUsersIsRetiredAtOnce) {
  IpcFile file(kBytes);
  EXPECT_TRUE(file.retire(kBlock));
}

TEST(IpcFile, AMessageUnderWayKeepsTheBlock) {
  IpcFile file(kBytes);
  const auto generation = file.send(kBlock);
  EXPECT_FALSE(file.retire(kBlock));
  EXPECT_TRUE(file.retire(2 * kBlock)) << "only this one";
  EXPECT_TRUE(file.receive(kBlock, generation));
  EXPECT_TRUE(file.retire(kBlock));
}

TEST(IpcFile, AMessageIsReceivedOnce) {
  IpcFile file(kBytes);
  const auto generation = file.send(kBlock);
  EXPECT_TRUE(file.receive(kBlock, generation));
  EXPECT_FALSE(file.receive(kBlock, generation));
}

TEST(IpcFile, AMessageAboutAnEarlierBlockIsNotReceived) {
  IpcFile file(kBytes);
  const auto earlier = file.send(kBlock);
  ASSERT_TRUE(file.receive(kBlock, earlier));
  ASSERT_TRUE(file.retire(kBlock));
  const auto later = file.send(kBlock);
  EXPECT_FALSE(file.receive(kBlock, earlier));
  EXPECT_TRUE(file.receive(kBlock, later));
}

TEST(IpcFile, AnotherProcessHoldsABlockUntilItReleasesIt) {
  IpcFile file(kBytes);
  const auto generation = file.send(kBlock);
  const Other other([&, name = file.name()] {
    IpcFile same(name);
    const bool received = hold_and_receive(same, generation);
    same.release(kBlock);
    return received;
  });
  EXPECT_TRUE(other.did());
  EXPECT_TRUE(file.retire(kBlock));
}

TEST(IpcFile, WhatAProcessHoldsIsFreeWhenItIsKilled) {
  IpcFile file(kBytes);
  const auto generation = file.send(kBlock);
  Other other([&, name = file.name()] {
    auto* const same = new IpcFile(name);
    return hold_and_receive(*same, generation);
  });
  ASSERT_TRUE(other.did());
  EXPECT_FALSE(file.retire(kBlock));
  EXPECT_TRUE(file.retire(2 * kBlock));
  other.kill();
  EXPECT_TRUE(file.retire(kBlock));
}

// What an owner leaves that is killed within retire(): see the file's layout in ipc_file.cpp.
TEST(IpcFile, AHolderCanSendABlockAfterItsOwnerWasKilledWhileItRetiredTheBlock) {
  IpcFile file(kBytes);
  constexpr std::uint64_t kGeneration = 3;
  constexpr std::uint64_t kRetiring = (kGeneration << 32) | (std::uint64_t{1} << 31);
  const auto place = static_cast<off_t>(kBytes + kBlock / IpcFile::kBlockBytes * sizeof kRetiring);
  ASSERT_EQ(pwrite(file.descriptor(), &kRetiring, sizeof kRetiring, place), sizeof kRetiring);
  const Other holder([name = file.name()] {
    auto* const same = new IpcFile(name);
    same->hold(kBlock);
    std::promise<std::uint32_t> sent;
    auto generation = sent.get_future();
    std::thread([same, sent = std::move(sent)]() mutable {
      sent.set_value(same->send(kBlock));
    }).detach();
    return generation.wait_for(std::chrono::seconds(30)) == std::future_status::ready &&
           same->receive(kBlock, kGeneration) && generation.get() == kGeneration;
  });
  EXPECT_TRUE(holder.did());
}

TEST(IpcFile, ABlockThatAHolderSendsIsNeverRetired) {
  constexpr int kRounds = 2000;
  IpcFile file(kBytes);
  int lines[2];
  ASSERT_EQ(pipe(lines), 0);
  const Other holder([&, name = file.name()] {
    auto* const same = new IpcFile(name);
    same->hold(kBlock);
    std::thread([=] {
      int lost = 0;
      for (int round = 0; round < kRounds; ++round) {
        const auto generation = same->send(kBlock);
        lost += same->receive(kBlock, generation) ? 0 : 1;
      }
      if (write(lines[1], &lost, sizeof lost) != sizeof lost) _exit(1);
    }).detach();
    return true;
  });
  ASSERT_TRUE(holder.did());
  std::atomic<bool> sent{false};
  int early = 0;
  std::thread owner([&] {
    while (!sent) early += file.retire(kBlock) ? 1 : 0;
  });
  int lost = -1;
  EXPECT_EQ(read(lines[0], &lost, sizeof lost), sizeof lost);
  sent = true;
  owner.join();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(early, 0);
  for (const int end : lines) close(end);
}

TEST(IpcFile, HoldsOfOneProcessAreCounted) {
  IpcFile file(kBytes);
  const Other other([name = file.name()] {
    auto* const same = new IpcFile(name);
    same->hold(kBlock);
    same->hold(kBlock);
    same->release(kBlock);
    same->hold(2 * kBlock);
    same->release(2 * kBlock);
    return true;
  });
  ASSERT_TRUE(other.did());
  EXPECT_FALSE(file.retire(kBlock));
  EXPECT_TRUE(file.retire(2 * kBlock));
}

TEST(IpcFile, AFileIsFoundWithAnotherProcessThatHasIt) {
  IpcFile file(kBytes);
  static constexpr char kWritten[] = "contents";
  ASSERT_EQ(pwrite(file.descriptor(), kWritten, sizeof kWritten, kBlock), sizeof kWritten);
  const Other second([name = file.name()] {
    const IpcFile same(name);
    const Other third([name = same.name()] {
      const IpcFile again(name);
      char read[sizeof kWritten] = {};
      return pread(again.descriptor(), read, sizeof read, kBlock) == sizeof read &&
             std::strcmp(read, kWritten) == 0;
    });
    return third.did();
  });
  EXPECT_TRUE(second.did());
}

TEST(IpcFile, AProcessThatIsGoneIsAClearError) {
  IpcFileName name;
  {
    const IpcFile file(kBytes);
    name = file.name();
  }
  EXPECT_PRED2(contains, error_of([&] { IpcFile{name}; }),
               "must not exit before the tensor is received")
      << "the descriptor is closed";
  const IpcFile other(kBytes);
  ASSERT_EQ(other.descriptor(), name.descriptor);
  EXPECT_PRED2(contains, error_of([&] { IpcFile{name}; }), "No such process")
      << "another file is there now";
}

TEST(IpcFile, ADescriptorThatIsNoFileIsNotOpened) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_PRED2(contains, error_of([&] {
                 IpcFile{IpcFileName{getpid(), ends[0], 1, kBytes}};
               }),
               "cannot open device memory of process");
  for (const int end : ends) close(end);
}

TEST(IpcFile, NoMoreDescriptorsIsAClearErrorAndLeavesNothing) {
  const std::string error = error_of([] {
    // The limit ends before the error is read: the undefined-behaviour sanitizer opens a pipe to
    // check that an object is what it is used as.
    const Limit none(RLIMIT_NOFILE, 0);
    const IpcFile file(kBytes);
  });
  EXPECT_PRED2(contains, error,
               "cannot open a file to share device memory with other processes: "
               "Too many open files; raise `ulimit -n`");
}

TEST(IpcFile, NoFileSizeIsAClearErrorAndLeavesNoDescriptor) {
  const int next = dup(0);
  close(next);
  const std::string error = error_of([] {
    const Limit small(RLIMIT_FSIZE, 4096);
    const IpcFile file(kBytes);
  });
  EXPECT_PRED2(contains, error, "File too large");
  const int after = dup(0);
  close(after);
  EXPECT_EQ(after, next);
}

// Repeated many times: the owner must not find the block unused between a message and a hold.
TEST(IpcFile, ABlockIsNeverRetiredBetweenTheMessageAndTheHold) {
  constexpr int kRounds = 2000;
  IpcFile file(kBytes);
  int generations[2];
  int answers[2];
  ASSERT_EQ(pipe(generations), 0);
  ASSERT_EQ(pipe(answers), 0);
  const Other receiver([&, name = file.name()] {
    auto* const same = new IpcFile(name);
    std::thread([=] {
      std::uint32_t generation = 0;
      while (read(generations[0], &generation, sizeof generation) == sizeof generation) {
        const char received = hold_and_receive(*same, generation) ? 1 : 0;
        if (write(answers[1], &received, 1) != 1) _exit(1);
        if (read(generations[0], &generation, sizeof generation) != sizeof generation) _exit(1);
        same->release(kBlock);
        if (write(answers[1], &received, 1) != 1) _exit(1);
      }
    }).detach();
    return true;
  });
  ASSERT_TRUE(receiver.did());
  int early = 0;
  char received = 0;
  const auto tell = [&](std::uint32_t generation) {
    return write(generations[1], &generation, sizeof generation) == sizeof generation;
  };
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(tell(file.send(kBlock)));
    std::atomic<bool> held{false};
    std::thread owner([&] {
      while (!held) early += file.retire(kBlock) ? 1 : 0;
    });
    ASSERT_EQ(read(answers[0], &received, 1), 1);
    ASSERT_EQ(received, 1);
    held = true;
    owner.join();
    ASSERT_FALSE(file.retire(kBlock));
    ASSERT_TRUE(tell(0));
    ASSERT_EQ(read(answers[0], &received, 1), 1);
    ASSERT_TRUE(file.retire(kBlock));
  }
  EXPECT_EQ(early, 0);
  for (const int end : {generations[0], generations[1], answers[0], answers[1]}) close(end);
}

}  // namespace
}  // namespace openreg
