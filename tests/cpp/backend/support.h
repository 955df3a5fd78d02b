#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <semaphore>
#include <span>
#include <utility>

#include "runtime/command.h"
#include "runtime/current_schedule.h"
#include "runtime/stream.h"

namespace openreg::backend::testing {

inline void run_work(const Kernel&, std::span<const std::byte> arguments) {
  std::function<void()>* queued = nullptr;
  std::memcpy(&queued, arguments.data(), sizeof queued);
  const std::unique_ptr<std::function<void()>> owner(queued);
  (*owner)();
}

inline const Kernel& work_kernel() {
  static const Kernel kernel("test::work", &run_work);
  return kernel;
}
/// For a command that waits for its test: in an adversarial schedule the call that submits it may
/// not run it.
inline const Kernel& waiting_kernel() {
  static const Kernel blocking("test::waiting_work", &run_work, {.may_block = true});
  return schedule() == Schedule{} ? work_kernel() : blocking;
}

/// Runs `work` as a command of `stream`. What it throws fails the command, whose kernel is called
/// "test::work". `expected`: its expected work.
inline void enqueue(openreg::Stream& stream, std::function<void()> work, Cost expected = {},
                    const Kernel& kernel = work_kernel()) {
  auto owner = std::make_unique<std::function<void()>>(std::move(work));
  auto* queued = owner.get();
  stream.enqueue(kernel, std::as_bytes(std::span(&queued, 1)), expected);
  owner.release();
}

/// Holds a stream back: what is submitted after the gate waits until it opens. It opens when it is
/// destroyed.
class StreamGate {
 public:
  explicit StreamGate(openreg::Stream& stream) {
    enqueue(
        stream,
        [state = state_] {
          state->reached.release();
          state->open.acquire();
        },
        {}, waiting_kernel());
  }
  ~StreamGate() { open(); }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  /// Returns when an engine has reached the gate.
  void wait_until_reached() { state_->reached.acquire(); }
  void open() {
    if (std::exchange(closed_, false)) state_->open.release();
  }

 private:
  struct State {
    std::binary_semaphore reached{0};
    std::binary_semaphore open{0};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  bool closed_ = true;
};

}  // namespace openreg::backend::testing
