#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../text.h"
#include "base/counters.h"
#include "base/settings.h"
#include "runtime/command.h"
#include "runtime/current_schedule.h"
#include "runtime/stream.h"
#include "runtime/stream_impl.h"

namespace openreg::testing {

/// A hand-shake: open() once, wait() any number of times.
class Gate {
 public:
  Gate() : opened_(promise_.get_future().share()) {}
  void open() { promise_.set_value(); }
  void wait() const { opened_.wait(); }

 private:
  std::promise<void> promise_;
  std::shared_future<void> opened_;
};

using Function = std::function<void()>;

/// Functions on their way through a queue. Those that a poisoned stream skips stay here.
class Functions {
 public:
  static Functions& get() {
    static Functions& functions = *new Functions;
    return functions;
  }
  Function* put(Function function) {
    auto owned = std::make_unique<Function>(std::move(function));
    Function* const key = owned.get();
    const std::lock_guard lock(mutex_);
    functions_.emplace(key, std::move(owned));
    return key;
  }
  std::unique_ptr<Function> take(Function* key) {
    const std::lock_guard lock(mutex_);
    return std::move(functions_.extract(key).mapped());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Function*, std::unique_ptr<Function>> functions_;
};

inline void call_function(const Kernel&, std::span<const std::byte> arguments) {
  Function* key = nullptr;
  std::memcpy(&key, arguments.data(), sizeof key);
  (*Functions::get().take(key))();
}

inline const Kernel& function_kernel() {
  static const Kernel kernel("test_function", &call_function);
  return kernel;
}
inline const Kernel& blocking_kernel() {
  static const Kernel kernel("test_blocking_function", &call_function, {.may_block = true});
  return kernel;
}

inline const Kernel& copy_kernel() {
  static const Kernel kernel("test_copying_function", &call_function,
                             {.engine = EngineKind::kCopy});
  return kernel;
}

/// Submits a command that calls `function`.
inline void enqueue(Stream& stream, Function function, const Kernel& kernel = function_kernel(),
                    Cost cost = {}) {
  Function* const key = Functions::get().put(std::move(function));
  try {
    stream.enqueue(kernel, std::as_bytes(std::span(&key, 1)), cost);
  } catch (...) {
    Functions::get().take(key);
    throw;
  }
}

inline const Kernel& empty_kernel() {
  static const Kernel kernel("test_nothing", [](const Kernel&, std::span<const std::byte>) {});
  return kernel;
}
inline void enqueue_nothing(Stream& stream) { stream.enqueue(empty_kernel(), {}); }

/// For a command that waits for its test: in an adversarial schedule the call that submits it may
/// not run it.
inline const Kernel& waiting_kernel() {
  return schedule() == Schedule{} ? function_kernel() : blocking_kernel();
}

/// Keeps a stream, and the engine that runs it, busy with a command that runs from the
/// constructor's return to open() or the destructor.
class Blocker {
 public:
  explicit Blocker(Stream& stream, const Kernel& kernel = waiting_kernel())
      : state_(std::make_shared<State>()) {
    enqueue(
        stream,
        [state = state_] {
          state->running.open();
          state->release.wait();
        },
        kernel);
    state_->running.wait();
  }
  ~Blocker() { open(); }
  Blocker(const Blocker&) = delete;
  Blocker& operator=(const Blocker&) = delete;

  void open() {
    if (!std::exchange(opened_, true)) state_->release.open();
  }

 private:
  struct State {
    Gate running;
    Gate release;
  };
  std::shared_ptr<State> state_;
  bool opened_ = false;
};

/// A new stream, destroyed at the end of the scope.
class OwnStream {
 public:
  explicit OwnStream(int device = 0, Priority priority = Priority::kNormal)
      : stream_(create_stream(device, priority)) {}
  ~OwnStream() { destroy_stream(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  Stream& operator*() const { return stream_; }
  Stream* operator->() const { return &stream_; }

 private:
  Stream& stream_;
};

/// While it exists, the stream's queue has room for this many commands only.
class QueueLimit {
 public:
  QueueLimit(Stream& stream, std::uint64_t commands)
      : queue_(StreamImpl::of(stream).queue), before_(queue_.set_limit(commands)) {}
  ~QueueLimit() { queue_.set_limit(before_); }
  QueueLimit(const QueueLimit&) = delete;
  QueueLimit& operator=(const QueueLimit&) = delete;

 private:
  CommandQueue& queue_;
  const std::uint64_t before_;
};

/// Keeps all engines busy except `free` of them.
class BusyEngines {
 public:
  explicit BusyEngines(int free = 0) {
    for (int i = free; i < settings().engines; ++i) busy_.push_back(std::make_unique<Busy>());
  }
  void open() { busy_.clear(); }

 private:
  struct Busy {
    OwnStream stream{1};
    Blocker blocker{*stream};
  };
  std::vector<std::unique_ptr<Busy>> busy_;
};

/// Waits until the predicate is true, for events without a hand-shake such as a thread that falls
/// asleep. Returns false after a time that suffices on any machine. Sleeps meanwhile: in an
/// adversarial schedule engines work soon if all threads are asleep (runtime/engine_gate.h).
template <class Predicate>
[[nodiscard]] bool happens(Predicate happened) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!happened()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

/// Observes host threads that fall asleep in a wait.
class SleepWatch {
 public:
  /// Waits until `threads` more have fallen asleep since the watch was made.
  [[nodiscard]] bool see(std::uint64_t threads = 1) const {
    return happens([&] { return sees(threads); });
  }
  /// Whether they have by now.
  bool sees(std::uint64_t threads = 1) const {
    return counters::sleeps.value() >= before_ + threads;
  }

 private:
  const std::uint64_t before_ = counters::sleeps.value();
};

}  // namespace openreg::testing
