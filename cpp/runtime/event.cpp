#include "runtime/event.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "base/device_name.h"
#include "base/error.h"
#include "base/mutex.h"
#include "runtime/adversary.h"
#include "runtime/capture.h"
#include "runtime/device_health.h"
#include "runtime/failure.h"
#include "runtime/fence.h"
#include "runtime/process.h"
#include "runtime/run_slice.h"
#include "runtime/stream_impl.h"
#include "runtime/wait.h"

namespace openreg {

namespace {

// A fence that has completed without a failure needs no command, and neither does a wait for the
// stream's own earlier work.
void wait_on_stream(const FenceRef& fence, StreamImpl& stream, Backpressure backpressure) {
  if (fence->source() == &stream) return;
  if (fence->done() && !fence->failed()) return note_ordered_after(stream, *fence);
  stream.enqueue_wait(fence, backpressure);
}

// None if the deadline is beyond the clock's range, which ends in 292 years.
std::optional<Deadline> deadline_after(std::chrono::milliseconds timeout) {
  const auto now = Deadline::clock::now();
  const auto longest = std::chrono::floor<std::chrono::milliseconds>(Deadline::max() - now);
  if (timeout > longest) return std::nullopt;
  return now + std::max(timeout, std::chrono::milliseconds(0));
}

void check_healthy_source(const Fence& fence) { check_healthy(fence.source()->device_index); }

// Called when the host has seen that the fence is complete. The failure belongs to the stream and
// is raised once: if it has been collected, there is nothing to raise.
void raise_failure_before(const Fence& fence) {
  note_host_observed(fence);
  check_healthy_source(fence);
  if (const FailurePtr failure = fence.source()->failure.take(fence.failure())) failure->raise();
}

}  // namespace

struct Event::Impl {
  explicit Impl(bool timing) : timing(timing) {}

  /// For a wait of a stream.
  FenceRef newest(std::shared_ptr<const CapturedPoint>& captured_as) const {
    const LockGuard lock(mutex);
    captured_as = point;
    return fence;
  }
  /// For a call of the host, which `what` describes.
  FenceRef newest(const char* what) const {
    std::shared_ptr<const CapturedPoint> captured_as;
    FenceRef newest = this->newest(captured_as);
    if (captured_as) refuse_captured_event(*captured_as, what);
    expect_safe_call(what);
    return newest;
  }
  FenceRef newest() const {
    const LockGuard lock(mutex);
    return fence;
  }
  void record(const StreamImpl& stream, FenceRef recorded,
              std::shared_ptr<const CapturedPoint> captured_as = nullptr) {
    const LockGuard lock(mutex);
    std::swap(fence, recorded);  // the old ones are released after the lock
    std::swap(point, captured_as);
    device.store(stream.device_index, std::memory_order_relaxed);
  }

  const bool timing;
  std::atomic<int> device{-1};
  mutable Mutex mutex;
  // The newest record: one of the two is set, or neither if there was none.
  FenceRef fence OPENREG_GUARDED_BY(mutex);
  std::shared_ptr<const CapturedPoint> point OPENREG_GUARDED_BY(mutex);
};

Event::Event(bool timing) : impl_(std::make_unique<Impl>(timing)) {}

Event::~Event() {
  // In a forked child another thread's lock or reference may be held for ever; and a failure may
  // hold objects that cannot be destroyed while the process ends.
  if (in_bad_fork() || is_shut_down()) static_cast<void>(impl_.release());
}

void Event::record(Stream& stream) {
  check_usable();
  StreamImpl& impl = StreamImpl::of(stream);
  check_healthy(impl.device_index);
  if (auto point = capture_record(impl)) {
    impl_->record(impl, FenceRef(), std::move(point));
    return;
  }
  FenceRef fence(new Fence(&impl, impl_->timing));
  impl.enqueue_record(fence);
  impl_->record(impl, std::move(fence));
}

void Event::record_internal(Stream& stream) {
  check_usable();
  StreamImpl& impl = StreamImpl::of(stream);
  FenceRef fence(new Fence(&impl, impl_->timing));
  if (!capture_internal_record(impl, fence)) impl.enqueue_internal_record(fence);
  impl_->record(impl, std::move(fence));
}

void Event::wait(Stream& stream, Backpressure backpressure) {
  check_usable();
  StreamImpl& impl = StreamImpl::of(stream);
  std::shared_ptr<const CapturedPoint> captured_as;
  const FenceRef fence = impl_->newest(captured_as);
  if (captured_as) return capture_wait(impl, *captured_as);
  if (!fence) return;
  if (backpressure == Backpressure::kWait) {
    check_healthy(impl.device_index);
    check_healthy_source(*fence);
  }
  expect_no_foreign_wait(impl);
  wait_on_stream(fence, impl, backpressure);
}

bool Event::is_complete() const noexcept {
  if (in_bad_fork()) return true;
  const FenceRef fence = impl_->newest();
  return !fence || fence->done();
}

bool Event::poll() {
  if (in_bad_fork()) return true;
  const FenceRef fence = impl_->newest();
  if (!fence) return true;
  if (adversary::is_active() && !is_shut_down())
    adversary::poll(Goal::fence(fence), adversary::QueryKind::kUntilReached);
  if (!fence->done()) return false;
  note_host_observed(*fence);
  return true;
}

bool Event::query() {
  if (in_bad_fork()) return true;
  const FenceRef fence = impl_->newest("query of an event");
  if (fence && !is_shut_down()) check_healthy_source(*fence);
  if (fence && adversary::is_active() && !is_shut_down()) adversary::poll(Goal::fence(fence));
  if (fence && !fence->done()) return false;
  if (is_shut_down()) return true;
  if (fence && fence->done()) raise_failure_before(*fence);
  return true;
}

void Event::synchronize() {
  check_usable();
  const FenceRef fence = impl_->newest("synchronize of an event");
  if (!fence) return;
  check_healthy_source(*fence);
  if (!fence->done()) {
    if (runs_here(*fence->source())) throw_self_wait();
    wait_for(Goal::fence(fence));
  }
  raise_failure_before(*fence);
}

bool Event::synchronize_within(std::chrono::milliseconds timeout) {
  check_usable();
  const auto deadline = deadline_after(timeout);
  const FenceRef fence = impl_->newest("synchronize of an event");
  if (!fence) return true;
  check_healthy_source(*fence);
  if (!fence->done()) {
    if (runs_here(*fence->source())) throw_self_wait();
    if (!sleep_until(fence, deadline)) return false;
  }
  note_host_observed(*fence);
  return true;
}

int Event::device() const noexcept { return impl_->device.load(std::memory_order_relaxed); }

double Event::elapsed_ms(const Event& start, const Event& end) {
  check_usable();
  const auto completed = [](const Event& event) {
    if (!event.impl_->timing) {
      throw Error(
          "openreg: the time between two events is unknown (got an event without timing, expected "
          "two made with timing enabled)");
    }
    FenceRef fence = event.impl_->newest("elapsed_time");
    if (!fence) {
      throw Error(
          "openreg: the time between two events is unknown (got an event that was never recorded, "
          "expected two recorded ones)");
    }
    if (!fence->done()) {
      throw Error(
          "openreg: the time between two events is unknown (got an event that has not completed, "
          "expected two completed events); synchronize them first");
    }
    raise_failure_before(*fence);
    return fence;
  };
  const FenceRef first = completed(start);
  const FenceRef second = completed(end);
  const int devices[] = {first->source()->device_index, second->source()->device_index};
  if (devices[0] != devices[1]) {
    throw Error("openreg: the time between two events is unknown (got events of " +
                device_name(devices[0]) + " and " + device_name(devices[1]) +
                ", expected two of one device); each device has its own clock");
  }
  return std::chrono::duration<double, std::milli>(second->time() - first->time()).count();
}

void wait_stream(Stream& stream, Stream& other) {
  Event event;
  event.record(other);
  event.wait(stream);
}

void wait_stream_internal(Stream& stream, Stream& other, Backpressure backpressure) {
  Event event;
  event.record_internal(other);
  event.wait(stream, backpressure);
}

ExternalEvent::ExternalEvent(const char* name) : fence_(FenceRef(new Fence(name)).detach()) {}

ExternalEvent::~ExternalEvent() {
  if (in_bad_fork() || is_shut_down()) return;
  const FenceRef fence = FenceRef::attach(fence_);
  if (fence->done()) return;
  // Nothing can complete it any more: fail its waiters instead of leaving them parked.
  signal(std::make_exception_ptr(
      Error("openreg: an external event was destroyed before it was signalled")));
}

void ExternalEvent::wait(Stream& stream, Backpressure backpressure) {
  check_usable();
  expect_no_foreign_wait(StreamImpl::of(stream));
  wait_on_stream(FenceRef(fence_), StreamImpl::of(stream), backpressure);
}

void ExternalEvent::signal(std::exception_ptr error) {
  if (in_bad_fork()) check_usable();  // throws; tested before shutdown, which may begin at any time
  if (is_shut_down()) return;
  fence_->signal(std::move(error));
}

}  // namespace openreg
