#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace openreg {

/// Counts events of this process, such as the waits of hosts: for display and for tests. Static
/// objects, one for each kind of event. Thread safe; does not order other memory accesses.
class Counter {
 public:
  /// `name` lives as long as the process. There are at most kMost counters.
  explicit Counter(const char* name) noexcept;
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  static constexpr std::size_t kMost = 32;

  const char* name() const noexcept { return name_; }
  /// Each thread counts for itself: only the first event of a thread takes a lock.
  void add(std::uint64_t events = 1) noexcept;
  /// The events of all threads since the process began or since the last reset.
  std::uint64_t value() const noexcept;
  void reset() noexcept;

 private:
  const char* const name_;
  const std::size_t index_;
};

/// Counters of what the scheduler does.
namespace counters {
extern Counter commands_by_engines;
extern Counter commands_by_hosts;
extern Counter grants;    ///< streams handed over to a waiting host
extern Counter helps;     ///< streams that a waiting host took over by itself
extern Counter parks;     ///< streams parked until an event completes
extern Counter spares;    ///< engines started in place of blocked ones
extern Counter sleeps;    ///< times that a host thread slept in a wait
extern Counter engines;   ///< engine threads started
extern Counter requests;  ///< requests to executors (executor.h), each with one or several commands
}  // namespace counters

/// All counters of the scheduler.
std::span<Counter* const> scheduler_counters() noexcept;

}  // namespace openreg
