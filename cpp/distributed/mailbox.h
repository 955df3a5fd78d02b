#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>

namespace openreg::distributed {

/// What a rank sends to itself, which Gloo does not carry. Messages of one tag arrive in the order
/// in which they were sent. Thread safe.
class Mailbox {
 public:
  /// Copies the bytes, so a send does not wait for its receive.
  void put(int tag, const at::Tensor& bytes);
  /// Waits for the next message of the tag, and writes it to the beginning of `bytes`. Throws if
  /// there is none within `timeout`, if it is larger than `bytes`, and the error of close().
  void take(int tag, const at::Tensor& bytes, std::chrono::milliseconds timeout);
  /// Ends all calls of take(), and those that come later, with `error`.
  void close(const std::exception_ptr& error);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::deque<at::Tensor>> messages_;
  std::exception_ptr closed_;
};

}  // namespace openreg::distributed
