#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>

#include "runtime/stream.h"

namespace openreg {

class Fence;

/// A point in a stream's work. An event refers to its newest record only; a call that waits
/// captures that record when it begins. Thread safe. It may be destroyed while waits are pending.
class Event {
 public:
  /// `timing`: whether elapsed_ms() may be called.
  explicit Event(bool timing = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  /// Records the event after the work that the stream has now. Throws as Stream::enqueue() does.
  void record(Stream& stream);
  /// Like record() with Backpressure::kIgnore, for the library's own use: no trace shows it, and if
  /// the stream is captured, it is no part of the graph and completes after the capture has ended.
  void record_internal(Stream& stream);
  /// Later commands of `stream` run after the newest record has completed. Does nothing if the
  /// event was never recorded. Throws as Stream::enqueue() does.
  void wait(Stream& stream, Backpressure backpressure = Backpressure::kWait);
  /// Whether the newest record has completed; true if the event was never recorded, or was last
  /// recorded in a capture. Never throws, never waits, and collects no failure.
  bool is_complete() const noexcept;
  /// Like is_complete(), for programs that call it until it is true: in an adversarial schedule
  /// (schedule.h), runs commands that the event needs. A host that gets true has seen the work
  /// complete (HappensBefore). Holds no lock of the runtime.
  bool poll();
  /// Like poll(), for callers that use the results: throws the source stream's CommandError, as
  /// synchronize() does, and CaptureError if a capture forbids the call. Never waits.
  bool query();
  /// Waits, and helps to run commands, until the newest record has completed. Throws the source
  /// stream's CommandError, CaptureError if a capture forbids the call, and what wait_for() throws
  /// (wait.h).
  void synchronize();

  /// Sleeps until the newest record has completed, for at most `timeout`. Returns whether it has
  /// completed. Collects no failure; otherwise throws as synchronize() does.
  bool synchronize_within(std::chrono::milliseconds timeout);

  /// The device of the newest record's stream; -1: never recorded.
  int device() const noexcept;
  /// Milliseconds from `start`'s record to `end`'s, measured by the threads that ran them. Throws
  /// Error unless both have timing, were recorded on the same device and have completed. Throws the
  /// source streams' CommandError.
  static double elapsed_ms(const Event& start, const Event& end);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Later commands of `stream` run after all work that `other` has now, as by Event::record() and
/// wait(). Throws as Stream::enqueue() does.
void wait_stream(Stream& stream, Stream& other);
/// Like wait_stream(), for the library's own use: by Event::record_internal().
void wait_stream_internal(Stream& stream, Stream& other,
                          Backpressure backpressure = Backpressure::kWait);

/// Something outside the device that streams can wait for (a collective, a host function). Its
/// first signal completes it; later ones do nothing.
class ExternalEvent {
 public:
  /// `name`, which is static, appears in errors and traces in place of a kernel's name.
  explicit ExternalEvent(const char* name = "external event");
  ~ExternalEvent();
  ExternalEvent(const ExternalEvent&) = delete;
  ExternalEvent& operator=(const ExternalEvent&) = delete;

  /// Later commands of `stream` run after the signal. Throws as Stream::enqueue() does.
  void wait(Stream& stream, Backpressure backpressure = Backpressure::kWait);
  /// Completes the event, from any thread that holds no lock of the runtime. An `error` poisons the
  /// streams that wait for it. Does nothing after shutdown. Throws Error in a forked child.
  void signal(std::exception_ptr error = nullptr);

 private:
  Fence* fence_;
};

}  // namespace openreg
