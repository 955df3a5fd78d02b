#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/launch_site.h"
#include "runtime/command.h"
#include "runtime/graph.h"

namespace openreg {

class FenceRef;
class Stream;
struct StreamImpl;

// Note [Capture]
//
// While a stream is captured, what is enqueued on it does not run: it becomes a node of a graph. A
// captured stream has a *frontier*: the nodes after which its next node runs. An event that is
// recorded on it carries the frontier; a stream that waits for that event adds it to its own
// frontier, and is captured from then on if it was not before. So work that is forked and joined by
// events becomes a graph with the same dependencies. All forked work must be joined before the
// capture ends.
//
// A call that needs the result of captured work cannot be captured, as that work has not run; nor
// can a call that orders captured work after work that is not captured. Such a call throws and
// invalidates the capture: its end throws too. The streams stay usable in any case, as their queues
// have not been touched.

/// Identifies a capture. 0 means none.
using CaptureId = std::uint64_t;

/// Which calls invalidate a capture, as with CUDA's streams. Calls are *potentially unsafe* if they
/// wait for or query streams and events that are not captured, or if they take memory from the
/// system, which may wait.
enum class CaptureMode : std::uint8_t {
  kGlobal,       ///< potentially unsafe calls of any thread
  kThreadLocal,  ///< potentially unsafe calls of the thread that began the capture
  kRelaxed,      ///< only calls that concern captured streams and events
};

/// A call that a capture does not permit. The message uses CUDA's wording.
class CaptureError : public Error {
 public:
  using Error::Error;
};

/// Captures `stream` from now on. Throws CaptureError, and invalidates the capture under way, if
/// the stream is captured already.
CaptureId begin_capture(Stream& stream, CaptureMode mode);

/// Ends the capture that began on `stream`. Throws CaptureError if there is none, or if it was
/// begun by another thread and its mode is not kRelaxed; in the latter case it stays under way.
/// Also throws if the capture was invalidated, or if forked work was not joined: then the capture
/// has ended and its commands are lost.
Graph end_capture(Stream& stream);

/// Whether a capture is under way, in any thread.
bool is_capturing() noexcept;

/// The latest capture that has begun; 0 if there is none. Later ones have greater numbers.
CaptureId last_capture();

/// Ends the captures under way that began after `after`, of all threads and modes, for programs
/// that have lost track of them: their commands are lost, and their streams run subsequent work.
/// A later call that ends such a capture finds none. Describes each, oldest first.
std::vector<std::string> abandon_captures(CaptureId after);

/// The capture that the stream takes part in; 0 if there is none. Takes no lock.
CaptureId capture_of(const Stream& stream) noexcept;

/// The nodes that a node of a capture under way runs after; none once the capture has ended.
std::vector<std::uint32_t> captured_before(CaptureId capture, std::uint32_t node);

/// Captures a run of `graph`: its nodes become nodes of the stream's capture. Does nothing if the
/// stream is not captured. Throws CaptureError if the capture has been invalidated.
void capture_graph(Stream& stream, const Graph& graph);

/// Throws CaptureError, and invalidates the capture, if `stream` is captured. `what` describes what
/// the caller is about to do, such as "aten::item waits".
void expect_not_captured(const Stream& stream, const char* what);

/// For a potentially unsafe call: throws CaptureError, and invalidates the capture, if the mode of
/// a capture forbids such calls to the calling thread. `what` describes the call.
void expect_safe_call(const char* what);

// --- For streams and events ---

/// An event that was recorded on a captured stream.
struct CapturedPoint {
  CaptureId capture = 0;
  std::vector<std::uint32_t> frontier;
};

/// Captures a command. False: the stream is not captured, and nothing has been done. Throws
/// CaptureError if the capture has been invalidated. Also throws, and invalidates the capture, if
/// the kernel cannot be captured (KernelTraits::once).
bool capture_command(StreamImpl& stream, const Kernel& kernel, std::span<const std::byte> arguments,
                     Cost cost, LaunchSite site);
/// Captures a record. Returns what its event then refers to; null if the stream is not captured.
/// Throws CaptureError if the capture has been invalidated.
std::shared_ptr<const CapturedPoint> capture_record(StreamImpl& stream);
/// Captures an internal record: `fence` completes once the capture has ended and the stream has run
/// what it has queued by then. False: the stream is not captured, and nothing has been done.
bool capture_internal_record(StreamImpl& stream, const FenceRef& fence);
/// For a wait for an event that was not captured: throws CaptureError, and invalidates the capture,
/// if the stream is captured.
void expect_no_foreign_wait(StreamImpl& stream);

/// Captures a wait for a captured event. Throws CaptureError if the event's capture has ended or
/// has been invalidated. Also throws, and invalidates that capture, if the stream takes part in
/// another one.
void capture_wait(StreamImpl& stream, const CapturedPoint& point);
/// Throws CaptureError, and invalidates the capture if it is under way: the host can neither wait
/// for a captured event nor query it.
[[noreturn]] void refuse_captured_event(const CapturedPoint& point, const char* what);

}  // namespace openreg
