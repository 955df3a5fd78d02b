#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

namespace torch_acme::driver {

/// A queue of commands and the thread that runs them, in order. Commands of different streams are
/// ordered by events only. All functions may be called from any thread.
class Stream {
 public:
  Stream(int device, int id) : device_(device), id_(id) {}

  int device() const { return device_; }
  int id() const { return id_; }

  /// Returns at once. A command that throws fails the stream: the next query() or synchronize()
  /// throws the first such exception.
  void submit(std::function<void()> command);
  /// Whether all commands have completed. Keeps a failure for synchronize().
  bool query();
  /// Waits until all commands have completed. Reports a failure once.
  void synchronize();

 private:
  void run();

  const int device_;
  const int id_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> commands_;  // the first one is running
  std::exception_ptr failure_;
  bool has_thread_ = false;
};

/// A place in a stream, given by the newest record(). What waits for an earlier record is not
/// affected by a later one: each has a Mark of its own.
class Event {
 public:
  void record(Stream& stream);
  /// Later commands of `stream` wait; the caller does not.
  void wait(Stream& stream) const;
  bool query() const;
  void synchronize() const;
  /// Milliseconds between two completed events.
  static double elapsed(const Event& start, const Event& end);

 private:
  struct Mark;
  std::shared_ptr<Mark> mark_;  // null before the first record: complete
};

constexpr int kPoolSize = 32;                // streams per priority, which are reused
constexpr int kStreams = 1 + 2 * kPoolSize;  // the default stream, and two pools

/// Stream 0 is the default stream. Streams exist until the process ends; a thread starts at the
/// first command.
Stream& stream(int device, int id);
/// The next stream of a pool.
Stream& stream_from_pool(int device, bool high_priority);

void synchronize_device(int device);

/// Whether a stream of the device has been used.
bool is_used(int device) noexcept;
/// True in a forked child of a process that used a device: the threads of its streams do not exist
/// in the child.
bool in_bad_fork() noexcept;

}  // namespace torch_acme::driver
