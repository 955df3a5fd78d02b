// Everything at once; the commands themselves check the invariants.

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "runtime/callbacks.h"
#include "runtime/command_error.h"
#include "runtime/event.h"
#include "stream_helpers.h"

namespace openreg {
namespace {

using namespace testing;

constexpr std::size_t kHosts = 4;
constexpr std::size_t kStreams = 6;
constexpr std::size_t kEvents = 8;
constexpr int kOperations = 10'000;  // per host

// A stream that checks that its commands never overlap and that those of one host keep their order.
class CheckedStream {
 public:
  CheckedStream(int device, Priority priority) : stream_(device, priority), limit_(*stream_, 32) {}
  CheckedStream(const CheckedStream&) = delete;
  CheckedStream& operator=(const CheckedStream&) = delete;

  Stream& get() const { return *stream_; }

  // Submits a command that does `work`; returns its number among the host's commands.
  std::uint64_t enqueue_checked(std::size_t host, std::function<void()> work) {
    const std::uint64_t number = accepted_[host] + 1;
    const auto checked = [this, host, number, work = std::move(work)] {
      overlaps_ += inside_.exchange(true);
      disorders_ += newest_[host] >= number;
      newest_[host] = number;
      ++ran_;
      const Leave leave{inside_};
      work();
    };
    enqueue(*stream_, checked, number % 4 == 0 ? copy_kernel() : function_kernel());
    return accepted_[host] = number;  // if it was not interrupted
  }

  std::uint64_t newest(std::size_t host) const { return newest_[host]; }
  std::uint64_t accepted(std::size_t host) const { return accepted_[host]; }

  void expect_sound(bool complete) const {
    EXPECT_TRUE(stream_->query());
    EXPECT_EQ(overlaps_, 0u);
    EXPECT_EQ(disorders_, 0u);
    std::uint64_t all = 0;
    for (const auto count : accepted_) all += count;
    if (complete) {
      EXPECT_EQ(ran_, all);
    }
  }

 private:
  struct Leave {
    std::atomic<bool>& inside;
    ~Leave() { inside = false; }
  };

  const OwnStream stream_;
  const QueueLimit limit_;
  std::array<std::uint64_t, kHosts> accepted_{};  // each host has its own
  std::array<std::atomic<std::uint64_t>, kHosts> newest_{};
  std::atomic<std::uint64_t> ran_{0};
  std::atomic<bool> inside_{false};
  std::atomic<std::uint64_t> overlaps_{0};
  std::atomic<std::uint64_t> disorders_{0};
};

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};
constinit thread_local bool t_interruptible = false;

class Stress {
 public:
  // With `failures`, commands throw and later ones are skipped: then less can be checked.
  explicit Stress(bool failures) : failures_(failures) {
    for (std::size_t i = 0; i < kStreams; ++i) {
      streams_.push_back(std::make_unique<CheckedStream>(
          static_cast<int>(i % 2), i == 0 ? Priority::kHigh : Priority::kNormal));
    }
    for (auto& event : events_) event = std::make_shared<Event>();
  }

  void run() {
    std::vector<std::thread> hosts;
    std::atomic<std::size_t> at_work{kHosts};
    for (std::size_t host = 0; host < kHosts; ++host) {
      hosts.emplace_back([this, host, &at_work] {
        work(host);
        --at_work;
      });
    }
    // Signals, which end waits.
    std::mt19937 random(0);
    while (at_work > 0) {
      pthread_kill(hosts[random() % kHosts].native_handle(), SIGUSR1);
      std::this_thread::yield();
    }
    for (auto& host : hosts) host.join();
    for (const int device : {0, 1}) {
      while (!attempt([&] { synchronize_device(device); })) {
      }
    }
    for (const auto& stream : streams_) stream->expect_sound(!failures_);
    EXPECT_EQ(early_waits_, 0u);
    EXPECT_EQ(early_returns_, 0u);
  }

 private:
  // False if it was interrupted, or collected a failure, whichever host caused it.
  template <class F>
  static bool attempt(F&& function) {
    try {
      function();
      return true;
    } catch (const CommandError&) {
      return false;
    } catch (const Interrupted&) {
      return false;
    }
  }

  std::shared_ptr<Event> event(std::size_t index) {
    const std::lock_guard lock(events_mutex_);
    return events_[index];
  }
  void replace_event(std::size_t index) {
    auto event = std::make_shared<Event>();
    const std::lock_guard lock(events_mutex_);
    events_[index].swap(event);
  }

  void work(std::size_t host) {
    t_interruptible = true;
    std::mt19937 random(static_cast<unsigned>(host));
    for (int i = 0; i < kOperations; ++i) attempt([&] { one_operation(host, random); });
    t_interruptible = false;
  }

  void one_operation(std::size_t host, std::mt19937& random) {
    const auto below = [&random](std::size_t bound) { return random() % bound; };
    CheckedStream& stream = *streams_[below(kStreams)];
    switch (below(16)) {
      default:
        stream.enqueue_checked(host, [] {});
        break;
      case 0:
        event(below(kEvents))->record(stream.get());
        break;
      case 1:
        event(below(kEvents))->wait(stream.get());
        break;
      case 2:
        event(below(kEvents))->synchronize();
        break;
      case 3:
        stream.get().synchronize();
        if (!failures_) early_returns_ += stream.newest(host) < stream.accepted(host);
        break;
      case 4:
        if (below(10) == 0) synchronize_device(static_cast<int>(below(2)));
        break;
      case 5:
        if (failures_) stream.enqueue_checked(host, [] { throw std::runtime_error("stress"); });
        break;
      case 6:
        stream.enqueue_checked(host, [this] {
          for (int c = 0; c < 40; ++c) enqueue_nothing(*leaf_);
        });
        break;
      case 7:
        stream.enqueue_checked(host, [this] {
          enqueue_nothing(*leaf_);
          leaf_->synchronize();
        });
        break;
      case 8:
        replace_event(below(kEvents));
        break;
      case 9:
        order_two_streams(host, stream, *streams_[below(kStreams)]);
        break;
      case 10:
        complete_from_outside(stream);
        break;
    }
  }

  // Commands after a wait see the results of what was submitted before the record.
  void order_two_streams(std::size_t host, CheckedStream& first, CheckedStream& second) {
    const std::uint64_t number = first.enqueue_checked(host, [] {});
    Event event;
    event.record(first.get());
    event.wait(second.get());
    second.enqueue_checked(host, [this, &first, host, number] {
      if (!failures_) early_waits_ += first.newest(host) < number;
    });
  }

  void complete_from_outside(CheckedStream& stream) {
    const auto external = std::make_shared<ExternalEvent>();
    external->wait(stream.get());
    external->signal();
  }

  const bool failures_;
  std::vector<std::unique_ptr<CheckedStream>> streams_;
  const OwnStream leaf_;  // waits for nothing: commands may wait for it
  std::mutex events_mutex_;
  std::array<std::shared_ptr<Event>, kEvents> events_;
  std::atomic<std::uint64_t> early_waits_{0};
  std::atomic<std::uint64_t> early_returns_{0};
};

class StressTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    sigaction(SIGUSR1, &action, nullptr);
    Callbacks callbacks;
    callbacks.check_interrupt = [] {
      if (t_interruptible) throw Interrupted();
    };
    install_callbacks(callbacks);
  }
};

TEST_F(StressTest, NothingOverlapsNothingIsLostAndEverythingEnds) { Stress(false).run(); }

TEST_F(StressTest, FailuresMakeNoDifferenceToThat) { Stress(true).run(); }

}  // namespace
}  // namespace openreg
