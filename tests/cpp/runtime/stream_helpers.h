#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "runtime/command.h"
#include "runtime/error.h"
#include "runtime/stream.h"

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

inline void call_function(std::span<const std::byte> arguments) {
  Function* function = nullptr;
  std::memcpy(&function, arguments.data(), sizeof function);
  const std::unique_ptr<Function> owned(function);
  (*owned)();
}

inline const Kernel& function_kernel() {
  static const Kernel kernel("test_function", &call_function);
  return kernel;
}
inline const Kernel& blocking_kernel() {
  static const Kernel kernel("test_blocking_function", &call_function, true);
  return kernel;
}

/// Submits a command that calls `function`. It leaks if the command is skipped.
inline void submit(Stream& stream, Function function, const Kernel& kernel = function_kernel()) {
  Function* const owned = new Function(std::move(function));
  stream.submit(kernel, std::as_bytes(std::span(&owned, 1)));
}

inline const Kernel& empty_kernel() {
  static const Kernel kernel("test_nothing", [](std::span<const std::byte>) {});
  return kernel;
}
inline void submit_nothing(Stream& stream) { stream.submit(empty_kernel(), {}); }

/// Keeps a stream busy: its command runs from the constructor's return to open() or the destructor.
/// It is an engine that runs it: nobody else is there.
class Blocker {
 public:
  explicit Blocker(Stream& stream) : state_(std::make_shared<State>()) {
    submit(stream, [state = state_] {
      state->running.open();
      state->release.wait();
    });
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

/// A stream of its own, destroyed at the end of the scope.
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

/// For what has no hand-shake, such as a thread that falls asleep.
template <class Predicate>
void wait_until(Predicate happened) {
  while (!happened()) std::this_thread::yield();
}

/// What `function` throws, in words; "nothing" if it does not.
template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace openreg::testing
