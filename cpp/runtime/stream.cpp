#include "runtime/stream.h"

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/adversary.h"
#include "runtime/device_health.h"
#include "runtime/fence.h"
#include "runtime/idle_command.h"
#include "runtime/process.h"
#include "runtime/run_slice.h"
#include "runtime/stream_impl.h"
#include "runtime/stream_pool.h"
#include "runtime/trace.h"
#include "runtime/wait.h"

namespace openreg {

namespace {

void drain_pool(StreamPool& pool, int device) {
  if (runs_device_here(device)) throw_self_wait();
  // All records first, so that this does not wait for work that is enqueued on one stream while it
  // waits for another.
  std::vector<Goal> records;
  for (StreamImpl* const stream : pool.streams()) {
    const auto before = clock_if_tracked(*stream);
    if (stream->drained()) {
      note_host_observed(before);
      continue;
    }
    const FenceRef fence(new Fence(stream));
    stream->enqueue_internal_record(fence);
    records.push_back(Goal::fence(fence));
  }
  wait_for_all(records);
}

void raise_failure(StreamImpl& stream) {
  check_healthy(stream.device_index);
  if (const FailurePtr failure = stream.failure.take()) failure->raise();
}

void check_accepts(const StreamImpl& stream, const Kernel& kernel) {
  if (kernel.traits().in_executor) {
    check_runs_kernels(stream.device_index);
  } else {
    check_healthy(stream.device_index);
  }
}

// The streams of a device that accepts work. Throws after shutdown, because a wait for work that
// was dropped would never end.
StreamPool& usable_pool(int device) {
  begin_use();
  check_usable();
  return StreamPool::of(device);
}

}  // namespace

int Stream::device() const noexcept { return StreamImpl::of(*this).device_index; }
std::int64_t Stream::id() const noexcept { return StreamImpl::of(*this).number; }
Priority Stream::priority() const noexcept { return StreamImpl::of(*this).level; }

void Stream::enqueue(const Kernel& kernel, std::span<const std::byte> arguments, Cost cost,
                     Backpressure backpressure) {
  check_usable();
  StreamImpl& stream = StreamImpl::of(*this);
  if (backpressure == Backpressure::kWait) check_accepts(stream, kernel);
  const LaunchSite site = launch_site();
  if (capture_of(*this) != 0 && capture_command(stream, kernel, arguments, cost, site)) return;
  stream.enqueue_run(kernel, arguments, cost, site, FenceRef(), backpressure);
}

void enqueue_idle(Stream& stream, const Kernel& kernel, std::span<const std::byte> arguments,
                  bool writes) {
  const StreamImpl& impl = StreamImpl::of(stream);
  const bool is_observed = tracing::on() || adversary::is_active() || capture_of(stream) != 0;
  if (is_observed || (writes && !impl.drained())) return stream.enqueue(kernel, arguments);
  check_usable();
  check_accepts(impl, kernel);
  if (writes) kernel.run(arguments);
}

void Stream::wait_for_room() {
  check_usable();
  check_healthy(device());
  StreamImpl::of(*this).make_room_if_full();
}

void Stream::enqueue_and_wait(const Kernel& kernel, std::span<const std::byte> arguments, Cost cost,
                              FailureScope scope) {
  check_usable();
  StreamImpl& stream = StreamImpl::of(*this);
  check_accepts(stream, kernel);
  if (runs_here(stream)) throw_self_wait();
  expect_not_captured(*this, kernel.name());
  expect_safe_call(kernel.name());
  // Shared with the queue, where an interrupted wait leaves it.
  const FenceRef done(new Fence(&stream));
  const LaunchSite site = launch_site();
  stream.enqueue_run(kernel, arguments, cost, site, done);
  try {
    wait_for(Goal::fence(done));
  } catch (...) {
    // Interrupted. What the command throws now belongs to the stream.
    if (std::exception_ptr error = done->abandon()) stream.poison(kernel, site, std::move(error));
    throw;
  }
  if (done->error()) {
    if (scope == FailureScope::kDevice) {
      const auto failure = std::make_shared<Failure>(kernel.name(), site, stream.device_index,
                                                     stream.number, done->error());
      failure->set_collected();
      note_device_failure(stream.device_index, failure);
    }
    std::rethrow_exception(done->error());
  }
  if (const FailurePtr earlier = done->failure_for(stream)) {
    check_healthy(stream.device_index);
    stream.failure.take(earlier.get());
    earlier->raise();
  }
}

bool Stream::idle() const noexcept { return in_bad_fork() || StreamImpl::of(*this).drained(); }

bool Stream::query() {
  expect_not_captured(*this, "query");
  expect_safe_call("query of a stream");
  if (!in_bad_fork() && !is_shut_down()) check_healthy(device());
  if (adversary::is_active() && !in_bad_fork() && !is_shut_down()) {
    StreamImpl& stream = StreamImpl::of(*this);
    adversary::poll(Goal::completed(stream, stream.queue.published()));
  }
  const auto before = clock_if_tracked(*this);
  if (!idle()) return false;
  note_host_observed(before);
  if (!in_bad_fork() && !is_shut_down()) raise_failure(StreamImpl::of(*this));
  return true;
}

void Stream::synchronize() {
  expect_not_captured(*this, "synchronize");
  expect_safe_call("synchronize of a stream");
  check_usable();
  check_healthy(device());
  drain();
  raise_failure(StreamImpl::of(*this));
}

void Stream::drain() {
  check_usable();
  StreamImpl& stream = StreamImpl::of(*this);
  if (runs_here(stream)) throw_self_wait();
  wait_until_drained(stream);
}

Stream& default_stream(int device) {
  begin_use();
  return StreamPool::of(device).default_stream();
}

Stream& create_stream(int device, Priority priority) {
  begin_use();
  return StreamPool::of(device).create(priority, kQueueLimit);
}

void destroy_stream(Stream& stream) noexcept {
  if (in_bad_fork() || is_shut_down()) return;
  StreamImpl& impl = StreamImpl::of(stream);
  StreamPool::of(impl.device_index).destroy(impl);
}

Stream& find_stream(int device, std::int64_t id) {
  begin_use();
  return StreamPool::of(device).find(id);
}

void synchronize_device(int device) {
  StreamPool& pool = usable_pool(device);
  for (StreamImpl* const stream : pool.streams())
    expect_not_captured(*stream, "synchronize of the device");
  expect_safe_call("synchronize of a device");
  check_healthy(device);
  drain_pool(pool, device);
  check_healthy(device);
  if (const FailurePtr oldest = pool.take_oldest_failure()) oldest->raise();
}

void drain_device(int device) { drain_pool(usable_pool(device), device); }

}  // namespace openreg
