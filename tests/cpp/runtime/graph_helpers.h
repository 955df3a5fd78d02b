#pragma once

#include <cstring>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "runtime/capture.h"
#include "runtime/command.h"
#include "runtime/stream.h"

namespace openreg::testing {

/// Records what repeated commands have done, in their order.
class Log {
 public:
  void add(int number) {
    const std::lock_guard lock(mutex_);
    numbers_.push_back(number);
  }
  std::vector<int> take() {
    const std::lock_guard lock(mutex_);
    return std::move(numbers_);
  }

 private:
  std::mutex mutex_;
  std::vector<int> numbers_;
};

struct Append {
  Log* log;
  int number;
};

inline const Kernel& append_kernel() {
  static const Kernel kernel("test_append",
                             [](const Kernel&, std::span<const std::byte> arguments) {
                               Append append{};
                               std::memcpy(&append, arguments.data(), sizeof append);
                               append.log->add(append.number);
                             });
  return kernel;
}

/// Submits a command that adds `number` to the log each time it runs.
inline void append(Stream& stream, Log& log, int number) {
  const Append arguments{&log, number};
  stream.enqueue(append_kernel(), std::as_bytes(std::span(&arguments, 1)));
}

/// Submits a command that calls `*function` each time it runs.
inline void call(Stream& stream, const std::function<void()>& function) {
  static const Kernel kernel("test_call", [](const Kernel&, std::span<const std::byte> arguments) {
    const std::function<void()>* called = nullptr;
    std::memcpy(&called, arguments.data(), sizeof called);
    (*called)();
  });
  const auto* const pointer = &function;
  stream.enqueue(kernel, std::as_bytes(std::span(&pointer, 1)));
}

/// Captures what `submits` submits to `stream`, and to streams that it forks, as a graph.
template <class F>
Graph captured(Stream& stream, F&& submits, CaptureMode mode = CaptureMode::kGlobal) {
  begin_capture(stream, mode);
  try {
    submits();
  } catch (...) {
    try {
      end_capture(stream);
    } catch (const CaptureError&) {  // for the same reason
    }
    throw;
  }
  return end_capture(stream);
}

}  // namespace openreg::testing
