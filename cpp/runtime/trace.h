#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/launch_site.h"
#include "runtime/command.h"

namespace openreg {

/// An interval on a track of a trace. A track belongs to a stream or to a thread.
struct TraceSlice {
  enum class What : std::uint8_t {
    kCommand,      ///< stream: a kernel, a copy, a fill, or an operation outside the device
    kEventRecord,  ///< stream: an event was recorded
    kEventWait,    ///< stream: it was parked until an event completed
    kSubmission,   ///< thread: the call that queued one of these
    kGraph,        ///< what a submission queued: a graph, whose nodes are commands
    kHostWait,     ///< thread: it waited for the device, or for room in a queue
  };

  What what = What::kCommand;
  What submits = What::kCommand;  ///< what a submission has queued
  bool by_engine = false;         ///< an engine ran the command, not a waiting host
  std::uint32_t id = 0;           ///< links a submission and what it queued; 0: queued untraced
  std::int32_t device = -1;
  std::int32_t thread = 0;         ///< the system's id of the thread that was busy
  std::int32_t other_device = -1;  ///< device on which an awaited event was recorded
  std::int64_t other_stream = 0;   ///< stream on which it was recorded
  std::int64_t stream = 0;
  std::int64_t begin = 0;  ///< nanoseconds since the epoch
  std::int64_t end = 0;
  LaunchSite site = 0;         ///< the line that launched a command
  const char* name = nullptr;  ///< name of the kernel, or of what the host waits for; static
  CommandSummary summary{};
  std::uint64_t operation = 0;   ///< innermost push_operation() of a thread
  std::uint64_t annotation = 0;  ///< innermost push_annotation() of a thread
};

/// Names a stream.
struct StreamTrack {
  std::int32_t device;
  std::int64_t stream;
};

struct Trace {
  std::vector<TraceSlice> slices;  ///< slices, not sorted
  std::uint64_t dropped = 0;       ///< number of slices above the limit
};

/// Records what streams and hosts do from start() to stop(). One recording at a time; all functions
/// may be called from any thread.
namespace tracing {

extern constinit std::atomic<bool> g_on;

/// Whether a recording is under way. If it is, the caller sees what start() has set. Without one,
/// this check is all that a launch or a command costs.
inline bool on() noexcept { return g_on.load(std::memory_order_acquire); }

/// Keeps the first `most` slices and counts those that follow. What was recorded before is dropped.
void start(std::size_t most);
/// Ends the recording and returns it. Commands that are still running are not in it.
Trace stop();
/// Within a recording, nothing is kept until resume(). Outside one, both do nothing.
void pause() noexcept;
void resume() noexcept;

/// The calling thread begins and ends an operation of the layers above (a call of an operator, a
/// range that the user named); `id` is the caller's.
void push_operation(std::uint64_t id);
void pop_operation() noexcept;
void push_annotation(std::uint64_t id);
void pop_annotation() noexcept;

/// Nanoseconds since the epoch.
std::int64_t now() noexcept;
/// Keeps a slice, with the calling thread as its thread. Never throws: if there is no memory for
/// the slice, it is dropped.
void keep(TraceSlice slice) noexcept;

/// A slice for the scope's duration on the calling thread's track. The work that it queues carries
/// id(), which is 0 if nothing is recorded.
class ThreadSlice {
 public:
  /// A wait.
  explicit ThreadSlice(const char* name) noexcept {
    if (on()) begin_wait(name);
  }
  /// The submission of a command.
  ThreadSlice(StreamTrack track, const Kernel& kernel,
              std::span<const std::byte> arguments) noexcept {
    if (on()) begin_submission(track, kernel, arguments);
  }
  /// The submission of an event's record or wait.
  ThreadSlice(StreamTrack track, TraceSlice::What submits) noexcept {
    if (on()) begin_submission(track, submits);
  }
  ~ThreadSlice() {
    if (slice_) finish();
  }
  ThreadSlice(const ThreadSlice&) = delete;
  ThreadSlice& operator=(const ThreadSlice&) = delete;

  std::uint32_t id() const noexcept { return slice_ ? slice_->id : 0; }

 private:
  friend class HostCommand;

  ThreadSlice() = default;
  void begin(TraceSlice slice) noexcept;
  void begin_wait(const char* name) noexcept;
  void begin_submission(StreamTrack track, const Kernel& kernel,
                        std::span<const std::byte> arguments) noexcept;
  void begin_submission(StreamTrack track, TraceSlice::What submits) noexcept;
  void finish() noexcept;

  std::optional<TraceSlice> slice_;
};

/// A command that the calling thread runs itself, while the stream is idle: a slice on the stream's
/// track too.
class HostCommand {
 public:
  HostCommand(StreamTrack track, const char* name, const CommandSummary& summary = {}) noexcept {
    if (on()) begin(track, name, summary);
  }
  ~HostCommand() {
    if (submission_.slice_) finish();
  }
  HostCommand(const HostCommand&) = delete;
  HostCommand& operator=(const HostCommand&) = delete;

 private:
  void begin(StreamTrack track, const char* name, const CommandSummary& summary) noexcept;
  void finish() noexcept;

  ThreadSlice submission_;
};

}  // namespace tracing

}  // namespace openreg
