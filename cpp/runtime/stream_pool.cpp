#include "runtime/stream_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>
#include <utility>

#include "base/device_name.h"
#include "base/error.h"
#include "base/settings.h"
#include "runtime/fence.h"

namespace openreg {

namespace {

std::atomic<const std::vector<StreamPool*>*> g_pools{nullptr};

const std::vector<StreamPool*>& pools() {
  static const std::vector<StreamPool*>& pools = [&]() -> const std::vector<StreamPool*>& {
    auto* const created = new std::vector<StreamPool*>;
    for (int device = 0; device < settings().devices; ++device) {
      created->push_back(new StreamPool(device));
    }
    g_pools.store(created, std::memory_order_release);
    return *created;
  }();
  return pools;
}

// What a debugger calls. A thread that it has stopped may hold any lock, so nothing is allocated.
constinit char g_dump[1 << 16];
constinit std::size_t g_dumped = 0;

template <class... Values>
void dump(const char* format, Values... values) {
  const auto space = sizeof g_dump - g_dumped;
  const auto length = std::snprintf(g_dump + g_dumped, space, format, values...);
  g_dumped += std::min(static_cast<std::size_t>(length), space - 1);
}

void dump_record(const Record& record) {
  if (record.kind == Record::kRun) return dump("%s", static_cast<Kernel*>(record.target)->name());
  if (record.kind == Record::kGraph) return dump("%s", "replay of a graph");
  const auto& fence = *static_cast<Fence*>(record.target);
  const char* const what = record.kind == Record::kWait ? "wait for" : "event at";
  if (fence.name()) return dump("%s \"%s\"", what, fence.name());
  dump("%s command %lu of %s:%d stream %ld", what, fence.position() + 1, kDeviceName,
       fence.source()->device_index, fence.source()->number);
}

void dump_stream(StreamImpl& stream) {
  constexpr const char* kStates[] = {"idle", "queued", "running", "parked", "left to a host"};
  dump("%s:%d stream %ld: %s, %lu of %lu commands completed%s", kDeviceName, stream.device_index,
       stream.number, kStates[static_cast<int>(stream.ownership.state())], stream.queue.completed(),
       stream.queue.published(), stream.failure.full() ? ", failed" : "");
  for (std::size_t i = 0; i < 4 && stream.queue.behind_front(i); ++i) {
    dump("%s", i == 0 ? "; next: " : ", ");
    dump_record(*stream.queue.behind_front(i));
  }
  dump("%s", "\n");
}

}  // namespace

const char* openreg_dump_streams() noexcept {
  g_dumped = 0;
  for (StreamPool* const pool : StreamPool::all()) {
    if (!pool->mutex_.try_lock()) return "a thread is changing the list of streams; try again\n";
    for (StreamImpl* const stream : pool->streams_) {
      if (stream && stream->queue.published() > 0) dump_stream(*stream);
    }
    pool->mutex_.unlock();
  }
  return g_dumped == 0 ? "no stream has been used\n" : g_dump;
}

StreamPool::StreamPool(int device)
    : device_(device), default_(new StreamImpl(device, 0, Priority::kNormal)), streams_{default_} {}

StreamPool& StreamPool::of(int device) {
  const auto& all = pools();
  const auto index = static_cast<std::size_t>(device);
  if (device < 0 || index >= all.size()) {
    throw Error("openreg: device index out of range (got " + std::to_string(device) +
                ", expected 0 to " + std::to_string(all.size() - 1) + ")");
  }
  return *all[index];
}

std::span<StreamPool* const> StreamPool::all() noexcept {
  const auto* const pools = g_pools.load(std::memory_order_acquire);
  return pools ? std::span(*pools) : std::span<StreamPool* const>();
}

StreamImpl& StreamPool::create(Priority priority, std::uint64_t queue_limit) {
  if (StreamImpl* const stream = reopen(priority, queue_limit)) return *stream;
  const LockGuard lock(mutex_);
  streams_.push_back(nullptr);
  try {
    const auto id = static_cast<std::int64_t>(streams_.size() - 1);
    return *(streams_.back() = new StreamImpl(device_, id, priority, queue_limit));
  } catch (...) {
    streams_.pop_back();
    throw;
  }
}

StreamImpl* StreamPool::reopen(Priority priority, std::uint64_t queue_limit) {
  StreamImpl* stream = nullptr;
  {
    const LockGuard lock(mutex_);
    const auto drained = std::ranges::find_if(closed_, [priority](const StreamImpl* candidate) {
      return candidate->level == priority && candidate->drained();
    });
    if (drained == closed_.end()) return nullptr;
    stream = *drained;
    closed_.erase(drained);
  }
  // The next user must not get the previous one's failure, but the failure must not be lost.
  if (FailurePtr failure = stream->failure.take()) {
    const LockGuard lock(mutex_);
    orphaned_.push_back(std::move(failure));
  }
  const LockGuard lock(stream->queue.mutex);
  stream->queue.set_limit(queue_limit);
  stream->queue.set_closed(false);
  return stream;
}

void StreamPool::destroy(StreamImpl& stream) noexcept {
  if (&stream == default_) return;
  {
    const LockGuard lock(stream.queue.mutex);
    if (stream.queue.set_closed(true)) return;
  }
  const LockGuard lock(mutex_);
  closed_.push_back(&stream);
}

StreamImpl& StreamPool::find(std::int64_t id) {
  StreamImpl* stream = nullptr;
  {
    const LockGuard lock(mutex_);
    if (id >= 0 && id < static_cast<std::int64_t>(streams_.size())) {
      stream = streams_[static_cast<std::size_t>(id)];
    }
  }
  if (stream) {
    const LockGuard lock(stream->queue.mutex);
    if (stream->queue.closed()) stream = nullptr;
  }
  if (!stream) {
    throw Error(device_name(device_) + " has no such stream (got " + std::to_string(id) +
                ", expected the id of a stream that has not been destroyed)");
  }
  return *stream;
}

std::vector<StreamImpl*> StreamPool::streams() const {
  const LockGuard lock(mutex_);
  return streams_;
}

std::vector<FailurePtr> StreamPool::failures() const {
  std::vector<FailurePtr> failures;
  {
    const LockGuard lock(mutex_);
    failures = orphaned_;
  }
  for (const StreamImpl* const stream : streams()) {
    if (FailurePtr failure = stream->failure.get()) failures.push_back(std::move(failure));
  }
  return failures;
}

FailurePtr StreamPool::take_oldest_failure() {
  while (true) {
    const std::vector<FailurePtr> all = failures();
    const auto oldest = std::ranges::min_element(
        all, {}, [](const FailurePtr& failure) { return failure->sequence(); });
    if (oldest == all.end()) return nullptr;
    if (take(**oldest)) return *oldest;  // else another thread was quicker
  }
}

// Returns whether it was found.
bool StreamPool::take(const Failure& failure) {
  bool taken = false;
  for (StreamImpl* const stream : streams()) {
    if (stream->failure.take(&failure)) taken = true;
  }
  const LockGuard lock(mutex_);
  const auto orphans =
      std::erase_if(orphaned_, [&](const FailurePtr& orphan) { return orphan.get() == &failure; });
  return taken || orphans > 0;
}

}  // namespace openreg
