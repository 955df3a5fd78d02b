#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "address_space/address_space.h"
#include "base/mutex.h"
#include "executor/descriptor.h"
#include "executor/messages.h"
#include "executor/shared_block.h"

namespace openreg::executor {

/// The program to start, which calls be_executor(), with its arguments. The number of the calling
/// process is added to them.
struct Program {
  std::string path;
  std::vector<std::string> arguments;
};

/// One life of a device's executor, as the program sees it. It follows what the device has mapped.
/// Thread safe. Shared by its requests.
class ExecutorProcess final : public MappingObserver {
 public:
  class Request;

  /// The end of an executor. `what` is a sentence without its full stop: "its process 12 was killed
  /// by SIGKILL".
  struct End {
    std::string what;
    /// The channel whose request ended the executor or, if it was ended from outside, was being
    /// handled.
    std::optional<std::size_t> channel;
    std::uint32_t progress = 0;  ///< progress of that request
  };
  /// Called once, on a thread of its own.
  using OnEnd = std::function<void(const End& end)>;

  /// Starts it, and returns when it serves requests. Throws Error if the system refuses, or if the
  /// process ends meanwhile.
  static std::shared_ptr<ExecutorProcess> start(const Program& program, int device, OnEnd on_end);
  ~ExecutorProcess() override;

  pid_t number() const noexcept { return number_; }
  /// Ends it, if it has not ended. Returns when it has.
  void end() noexcept OPENREG_EXCLUDES(mutex_);
  bool has_ended() const noexcept { return ended_.load(std::memory_order_acquire); }

  /// Lets the process drop what requests have left in it under this number.
  void forget(std::uint64_t number) noexcept;

  void mapped(const Mapping& mapping) noexcept override;
  void unmapped(const Mapping& mapping) noexcept override;

 private:
  // The descriptor is that of the file itself: closing another one of it would end the process's
  // locks (ipc_file.cpp).
  struct Unsent {
    Message message;
    int descriptor;
  };

  explicit ExecutorProcess(int device);
  void spawn(const Program& program);
  void greet();
  void wait_until_ready();
  void watch(const OnEnd& on_end);
  // `status` is none if the supervisor has ended without a report.
  End describe_end(std::optional<int> status) const;
  std::string cause_of_end(std::optional<int> status) const;
  void reap_supervisor() const noexcept;
  void post(const Message& message, int descriptor = -1) noexcept OPENREG_EXCLUDES(mutex_);
  void forget_unsent(const Mapping& mapping) noexcept OPENREG_EXCLUDES(mutex_);
  bool send_unsent() OPENREG_REQUIRES(mutex_);
  /// The number of mappings in effect before a request that is made now; waits for room in the
  /// socket.
  std::uint32_t flush() OPENREG_EXCLUDES(mutex_);

  std::optional<std::size_t> take_channel() OPENREG_EXCLUDES(mutex_);
  void give_back(std::size_t channel) noexcept OPENREG_EXCLUDES(mutex_);

  const int device_;
  pid_t number_ = 0;
  pid_t supervisor_number_ = 0;
  Descriptor supervisor_;
  Descriptor socket_;
  SharedBlock* block_ = nullptr;
  Descriptor block_file_;
  std::atomic<bool> ended_{false};

  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Unsent> unsent_ OPENREG_GUARDED_BY(mutex_);
  std::uint32_t mappings_ OPENREG_GUARDED_BY(mutex_) = 0;  // messages about memory, sent or not
  std::vector<std::size_t> free_ OPENREG_GUARDED_BY(mutex_);
  std::size_t served_ OPENREG_GUARDED_BY(mutex_) = 0;  // channels that have a thread there
};

/// The parts of a request begin at multiples of this number.
inline constexpr std::size_t kPartAlignment = 16;

/// A request on its way. Used by one thread at a time.
class ExecutorProcess::Request {
 public:
  using Parts = std::span<const std::span<const std::byte>>;

  /// Waits for a free channel. The process may have ended: then there is none, and what is sent has
  /// no answer.
  explicit Request(std::shared_ptr<ExecutorProcess> process);
  Request(Request&& other) noexcept;
  Request& operator=(Request&& other) noexcept;
  ~Request();

  std::optional<std::size_t> channel() const noexcept { return number_; }
  /// Sends the request. Called once, before wait(). Each part begins at a multiple of
  /// kPartAlignment.
  void send(Parts parts);
  /// Waits for the answer. False: the limit has been reached first.
  bool wait(std::optional<std::chrono::milliseconds> limit = std::nullopt);
  struct Answer {
    std::uint32_t status;
    std::span<const std::byte> data;  // lives as long as the request
  };
  /// Called after wait(). No value: the process has ended.
  std::optional<Answer> answer() const noexcept;
  /// How far the process was when it ended.
  std::uint32_t progress() const noexcept;

 private:
  void send_piece();
  Channel& channel_of() const noexcept { return process_->block_->channels[*number_]; }

  std::shared_ptr<ExecutorProcess> process_;
  std::optional<std::size_t> number_;
  std::uint32_t sent_ = 0;  // the number of the newest piece
  std::vector<std::byte> rest_;
  std::size_t next_ = 0;  // of the rest
};

/// The status of an answer to a piece that is not the last one.
inline constexpr std::uint32_t kGoOn = ~std::uint32_t{0};

}  // namespace openreg::executor
