#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>

namespace openreg {

class Stream;
class Fence;

/// A point in a stream's work. It refers to its newest record only; who waits captures that record
/// when it calls. Thread safe. Destroying it with waits pending is allowed.
class Event {
 public:
  /// `timing`: whether elapsed_ms() may be asked.
  explicit Event(bool timing = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream& stream);
  /// The same for those who hold a lock or clean up: it never waits for room in the stream's queue,
  /// and a destroyed stream is no error.
  void mark(Stream& stream);
  /// Later commands of `stream` run after the newest record has happened; a never recorded event is
  /// no wait.
  void wait(Stream& stream);
  /// The newest record has happened; true for a never recorded event. Never throws, never waits,
  /// and collects no failure.
  bool happened() const noexcept;
  /// The same, for those who use the results: throws the source stream's CommandError, as
  /// synchronize() does. Never waits.
  bool query();
  /// Waits (and works) until the newest record has happened. Throws the source stream's
  /// CommandError.
  void synchronize();

  /// Sleeps until the newest record has happened, at most as long as `timeout`. Whether it has;
  /// collects no failure.
  bool synchronize_within(std::chrono::milliseconds timeout);

  /// Number of records so far, for display; 0: never recorded.
  std::uint64_t version() const noexcept;
  /// The device of the newest record's stream; -1: never recorded.
  int device() const noexcept;
  /// Milliseconds from `start`'s record to `end`'s, taken by whoever ran them. Throws Error unless
  /// both have timing, were recorded, and have happened, and the source streams' CommandError.
  static double elapsed_ms(const Event& start, const Event& end);

 private:
  struct Impl;
  void enqueue(Stream& stream, bool may_wait);

  std::unique_ptr<Impl> impl_;
};

/// Something outside of the device that streams can wait for (a collective, a host function). One
/// shot.
class ExternalEvent {
 public:
  /// `name`, which is static, stands in errors and traces where kernels have theirs.
  explicit ExternalEvent(const char* name = "external event");
  ~ExternalEvent();
  ExternalEvent(const ExternalEvent&) = delete;
  ExternalEvent& operator=(const ExternalEvent&) = delete;

  void wait(Stream& stream);
  /// Completes it, from any thread that holds no lock of the runtime. An `error` poisons the
  /// streams that wait.
  void signal(std::exception_ptr error = nullptr);

 private:
  Fence* fence_;
};

}  // namespace openreg
