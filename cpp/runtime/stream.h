#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/command.h"

namespace openreg {

enum class Priority : int { kHigh = -1, kNormal = 0 };

/// What an enqueue does if the stream's queue is full. Commands never wait for room, because a
/// command must not wait for itself. Callers that clean up, or must not fail half-way, ignore the
/// backpressure: the queue grows, so they cannot be interrupted, and a destroyed stream is not an
/// error.
enum class Backpressure : std::uint8_t {
  kWait,          ///< waits for room, and may run commands while it waits
  kIgnore,        ///< for callers that may hold a lock: the thread runs no commands
  kIgnoreAndRun,  ///< for callers that hold no lock: the thread may run brief commands
};

/// The scope of the failure of a command that a call waits for.
enum class FailureScope : std::uint8_t {
  kCall,    ///< the call only: the arguments were wrong
  kDevice,  ///< also the device, as if no call had waited (device_health.h)
};

/// A FIFO of commands on one device. It owns no thread: engines and waiting hosts run it
/// (docs/architecture.md, "Streams"). Thread safe: many threads may enqueue on one stream. Stream
/// objects are never freed: a reference stays valid for the life of the process.
class Stream {
 public:
  int device() const noexcept;
  /// Stable identity within the device; 0 is the device's default stream.
  std::int64_t id() const noexcept;
  Priority priority() const noexcept;

  /// Enqueues a command; `arguments` are copied. If the stream is captured, the command becomes a
  /// node of the graph instead. Throws Error in a forked child, after shutdown and for a destroyed
  /// stream, DeviceError if the device has failed or is lost, CaptureError if the capture does not
  /// permit the command, and what Callbacks::check_interrupt throws while it waits for room.
  void enqueue(const Kernel& kernel, std::span<const std::byte> arguments, Cost cost = {},
               Backpressure backpressure = Backpressure::kWait);
  /// Returns when there is room in the queue; other threads may take it. Throws what enqueue()
  /// throws while it waits for room.
  void wait_for_room();

  /// Like enqueue(), but returns when this command has run; the calling thread helps to run
  /// commands. What the command throws is thrown here, unchanged, and only here; later commands
  /// run, unless the device has failed (FailureScope). If the wait is interrupted, the stream fails
  /// instead. Throws CommandError if an earlier failure made the stream skip the command, Error if
  /// called from a command of this stream, and CaptureError if a capture forbids the call.
  void enqueue_and_wait(const Kernel& kernel, std::span<const std::byte> arguments, Cost cost = {},
                        FailureScope scope = FailureScope::kCall);

  /// Whether nothing is queued and nothing is running. Never throws, never waits, and collects no
  /// failure.
  bool idle() const noexcept;

  /// Like idle(), for callers that use the results: throws CommandError as synchronize() does if
  /// the stream is idle and a command failed, and CaptureError if a capture forbids the call. Never
  /// waits; in an adversarial schedule (schedule.h), runs commands that the stream needs.
  bool query();

  /// Returns when all that was enqueued before the call has completed; the calling thread helps to
  /// run commands. Throws CommandError (once per failure; the stream is usable again afterwards),
  /// CaptureError if a capture forbids the call, Error if called from a command of this stream, and
  /// what Callbacks::check_interrupt throws.
  void synchronize();

  /// Like synchronize(), for callers that do not use the results: a failure is left for those that
  /// do.
  void drain();

  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

 protected:
  Stream() = default;
  ~Stream() = default;
};

/// Device `device`'s default stream. Throws Error if there is no such device.
Stream& default_stream(int device);
/// Makes a stream, or reuses a destroyed one that has drained.
Stream& create_stream(int device, Priority priority = Priority::kNormal);
/// The stream accepts no more work. What is queued still runs; then the object can be reused. Does
/// nothing for a default stream.
void destroy_stream(Stream& stream) noexcept;
/// The live stream with this id. Throws Error if there is none.
Stream& find_stream(int device, std::int64_t id);

/// Waits for all streams of the device and throws its oldest failure. Each other failure stays for
/// a later call. Throws as Stream::synchronize() does; Error if called from a command of any stream
/// of the device.
void synchronize_device(int device);
/// Like synchronize_device(), but collects no failure.
void drain_device(int device);

}  // namespace openreg
