#include "runtime/trace.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <new>
#include <utility>

#include "base/mutex.h"
#include "base/per_thread.h"

namespace openreg::tracing {

constinit std::atomic<bool> g_on{false};

namespace {

using Ids = std::vector<std::uint64_t>;

// The ids of operator calls are small numbers; these ids must differ from them, because both are
// looked up together.
constexpr std::uint32_t kFirstId = 0x40000000;
constexpr std::size_t kShards = 16;

// Threads are spread over the shards, so that they rarely contend for a lock.
struct alignas(64) Shard {
  Mutex mutex;
  std::vector<TraceSlice> slices OPENREG_GUARDED_BY(mutex);
};

struct Recording {
  Mutex mutex;  // of start, stop, pause and resume
  bool active OPENREG_GUARDED_BY(mutex) = false;

  std::atomic<std::uint32_t> number{0};  // of this recording
  std::atomic<std::int64_t> started{0};
  std::atomic<std::uint64_t> room{0};  // slices that may still be kept
  std::atomic<std::uint64_t> dropped{0};
  std::atomic<std::uint32_t> next_id{kFirstId};
  std::atomic<unsigned> threads{0};
  std::array<Shard, kShards> shards;
};

// Leaked, because threads may still run commands while the process ends.
Recording& recording() {
  static Recording& recording = *new Recording;
  return recording;
}

struct ThisThread {
  const std::int32_t number = ::gettid();
  Shard& shard = recording().shards[recording().threads.fetch_add(1) % kShards];
  // Entries that an earlier recording left open do not count.
  std::uint32_t recording_number = 0;
  Ids operations;
  Ids annotations;

  void join_recording() noexcept {
    const auto now = recording().number.load(std::memory_order_relaxed);
    if (std::exchange(recording_number, now) == now) return;
    operations.clear();
    annotations.clear();
  }
};

std::uint64_t innermost(const Ids& ids) noexcept { return ids.empty() ? 0 : ids.back(); }

bool take_room() noexcept {
  auto& room = recording().room;
  auto left = room.load(std::memory_order_relaxed);
  while (left != 0 && !room.compare_exchange_weak(left, left - 1, std::memory_order_relaxed)) {
  }
  return left != 0;
}

TraceSlice submission_of(StreamTrack track, const char* name,
                         const CommandSummary& summary) noexcept {
  return {.what = TraceSlice::What::kSubmission,
          .submits = TraceSlice::What::kCommand,
          .device = track.device,
          .stream = track.stream,
          .name = name,
          .summary = summary};
}

void push(Ids ThisThread::*ids, std::uint64_t id) {
  if (auto* const thread = per_thread<ThisThread>()) {
    thread->join_recording();
    (thread->*ids).push_back(id);
  }
}

// Null also if there is no memory for it.
ThisThread* this_thread() noexcept {
  try {
    return per_thread<ThisThread>();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void pop(Ids ThisThread::*ids) noexcept {
  if (auto* const thread = this_thread()) {
    thread->join_recording();
    if (!(thread->*ids).empty()) (thread->*ids).pop_back();  // else it began before the recording
  }
}

}  // namespace

std::int64_t now() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void start(std::size_t most) {
  auto& recording = tracing::recording();
  const LockGuard lock(recording.mutex);
  recording.number.fetch_add(1, std::memory_order_relaxed);
  recording.started.store(now(), std::memory_order_relaxed);
  for (Shard& shard : recording.shards) {
    const LockGuard shard_lock(shard.mutex);  // later holders see the new start
    shard.slices.clear();
  }
  recording.room.store(most, std::memory_order_relaxed);
  recording.dropped.store(0, std::memory_order_relaxed);
  recording.active = true;
  g_on.store(true, std::memory_order_release);
}

Trace stop() {
  auto& recording = tracing::recording();
  const LockGuard lock(recording.mutex);
  recording.active = false;
  g_on.store(false, std::memory_order_relaxed);
  recording.room.store(0, std::memory_order_relaxed);
  Trace trace;
  for (Shard& shard : recording.shards) {
    const LockGuard shard_lock(shard.mutex);
    trace.slices.insert(trace.slices.end(), shard.slices.begin(), shard.slices.end());
    shard.slices = {};
  }
  trace.dropped = recording.dropped.load(std::memory_order_relaxed);
  return trace;
}

void pause() noexcept { g_on.store(false, std::memory_order_relaxed); }

void resume() noexcept {
  const LockGuard lock(recording().mutex);
  if (recording().active) g_on.store(true, std::memory_order_release);
}

void push_operation(std::uint64_t id) { push(&ThisThread::operations, id); }
void pop_operation() noexcept { pop(&ThisThread::operations); }
void push_annotation(std::uint64_t id) { push(&ThisThread::annotations, id); }
void pop_annotation() noexcept { pop(&ThisThread::annotations); }

void keep(TraceSlice slice) noexcept {
  if (!on()) return;
  try {
    auto* const thread = per_thread<ThisThread>();
    if (!thread) return;
    slice.thread = thread->number;
    const LockGuard lock(thread->shard.mutex);
    // A slice that began before the recording is not part of it.
    if (slice.begin < recording().started.load(std::memory_order_relaxed)) return;
    if (take_room()) {
      thread->shard.slices.push_back(slice);
    } else {
      recording().dropped.fetch_add(1, std::memory_order_relaxed);
    }
  } catch (const std::bad_alloc&) {
    recording().dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

void ThreadSlice::begin(TraceSlice slice) noexcept {
  if (auto* const thread = this_thread()) {
    thread->join_recording();
    slice.operation = innermost(thread->operations);
    slice.annotation = innermost(thread->annotations);
  }
  slice.id = recording().next_id.fetch_add(1, std::memory_order_relaxed) | kFirstId;
  slice.begin = now();
  slice_ = slice;
}

void ThreadSlice::begin_wait(const char* name) noexcept {
  begin({.what = TraceSlice::What::kHostWait, .name = name});
}

void ThreadSlice::begin_submission(StreamTrack track, const Kernel& kernel,
                                   std::span<const std::byte> arguments) noexcept {
  begin(submission_of(track, kernel.name(), kernel.summary(arguments)));
}

void ThreadSlice::begin_submission(StreamTrack track, TraceSlice::What submits) noexcept {
  begin({.what = TraceSlice::What::kSubmission,
         .submits = submits,
         .device = track.device,
         .stream = track.stream});
}

void ThreadSlice::finish() noexcept {
  slice_->end = now();
  keep(*slice_);
}

void HostCommand::begin(StreamTrack track, const char* name,
                        const CommandSummary& summary) noexcept {
  submission_.begin(submission_of(track, name, summary));
}

void HostCommand::finish() noexcept {
  TraceSlice command = *submission_.slice_;
  command.what = TraceSlice::What::kCommand;
  command.end = now();
  keep(command);
}

}  // namespace openreg::tracing
