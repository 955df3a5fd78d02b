#include "runtime/stream_impl.h"

#include <memory>
#include <string>
#include <utility>

#include "base/device_name.h"
#include "base/error.h"
#include "runtime/adversary.h"
#include "runtime/brief_run.h"
#include "runtime/callbacks.h"
#include "runtime/device_health.h"
#include "runtime/fence.h"
#include "runtime/graph_exec.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"
#include "runtime/trace.h"
#include "runtime/wait.h"

namespace openreg {

void StreamImpl::enqueue_run(const Kernel& kernel, std::span<const std::byte> arguments, Cost cost,
                             LaunchSite site, const FenceRef& fence, Backpressure backpressure) {
  const tracing::ThreadSlice traced({device_index, number}, kernel, arguments);
  if (fence) note_record(*fence, *this);
  FenceRef reference = fence;
  // The queue only reads the kernel; the targets of other records are not const.
  const Record record{.target = const_cast<Kernel*>(&kernel),
                      .kind = Record::kRun,
                      .cost = cost,
                      .fence = fence.get(),
                      .traced_as = traced.id(),
                      .site = site};
  const auto position = publish(record, arguments, fence.get(), backpressure);
  reference.detach();
  find_runner(record, position, backpressure);
}

void StreamImpl::enqueue_record(const FenceRef& fence) {
  const tracing::ThreadSlice traced({device_index, number}, TraceSlice::What::kEventRecord);
  note_record(*fence, *this);
  FenceRef reference = fence;
  const Record record{.target = reference.get(), .kind = Record::kRecord, .traced_as = traced.id()};
  const auto position = publish(record, {}, reference.get(), Backpressure::kWait);
  reference.detach();
  find_runner(record, position, Backpressure::kWait);
}

void StreamImpl::enqueue_internal_record(const FenceRef& fence) {
  note_record(*fence, *this);
  FenceRef reference = fence;
  const Record record{.target = reference.get(), .kind = Record::kRecord};
  const auto position = publish(record, {}, reference.get(), Backpressure::kIgnore);
  reference.detach();
  find_runner(record, position, Backpressure::kIgnore);
}

void StreamImpl::enqueue_wait(const FenceRef& fence, Backpressure backpressure) {
  const tracing::ThreadSlice traced({device_index, number}, TraceSlice::What::kEventWait);
  note_ordered_after(*this, *fence);
  FenceRef reference = fence;
  const Record record{.target = reference.get(),
                      .kind = Record::kWait,
                      .traced_as = traced.id(),
                      .site = fence->source() ? 0 : launch_site()};
  const auto position = publish(record, {}, nullptr, backpressure);
  reference.detach();
  find_runner(record, position, backpressure);
}

void StreamImpl::enqueue_graph(std::unique_ptr<GraphRun> run, Cost cost) {
  const tracing::ThreadSlice traced({device_index, number}, TraceSlice::What::kGraph);
  const Record record{.target = run.get(),
                      .kind = Record::kGraph,
                      .cost = cost,
                      .traced_as = traced.id(),
                      .computes = run->has_node()};
  const auto position = publish(record, {}, nullptr, Backpressure::kIgnore);
  static_cast<void>(run.release());
  find_runner(record, position, Backpressure::kIgnore);
}

std::uint64_t StreamImpl::publish(const Record& record, std::span<const std::byte> arguments,
                                  Fence* completes, Backpressure backpressure) {
  UniqueLock lock(queue.mutex);
  if (backpressure == Backpressure::kWait) {
    while (!has_room()) {
      lock.unlock();
      make_room();
      lock.lock();
    }
  }
  return queue.push(record, arguments, completes);
}

void StreamImpl::find_runner(const Record& record, std::uint64_t position,
                             Backpressure backpressure) {
  if (adversary::is_active()) return adversary::submitted(*this, record, position, backpressure);
  // See Note [Who runs a stream]: either this sees the stream idle, or its owner sees the tail.
  if (!ownership.idle()) return;
  if (backpressure != Backpressure::kIgnore && is_brief(record) && !in_command()) {
    run_brief_commands(*this);
  } else {
    Scheduler::get().schedule(*this);
  }
}

bool StreamImpl::is_brief(const Record& record) noexcept {
  if (record.kind == Record::kGraph) return false;
  return record.kind != Record::kRun || static_cast<const Kernel*>(record.target)->traits().brief;
}

void StreamImpl::make_room_if_full() {
  const auto room = [this] {
    const LockGuard lock(queue.mutex);
    return has_room();
  };
  while (!room()) make_room();
}

bool StreamImpl::has_room() {
  if (queue.closed()) {
    throw Error("openreg: stream " + std::to_string(number) + " of " + device_name(device_index) +
                " has been destroyed; it accepts no more work");
  }
  return !queue.full() || in_command();
}

void StreamImpl::make_room() {
  const auto works = current_callbacks().runs_when_full;
  if (adversary::is_active() || !works || works()) {
    wait_for(Goal::completed(*this, queue.completed_when_half_free()));
  } else {
    const FenceRef end(new Fence(this));
    enqueue_internal_record(end);
    sleep_until(end);
  }
}

const Kernel* StreamImpl::next_kernel() noexcept {
  const Record& record = queue.front();
  if (record.kind == Record::kRun) return static_cast<const Kernel*>(record.target);
  if (record.kind == Record::kGraph) {
    const auto& run = *static_cast<const GraphRun*>(record.target);
    if (run.has_node()) return run.node().kernel;
  }
  return nullptr;
}

std::optional<EngineKind> StreamImpl::next_engine() noexcept {
  const Kernel* const kernel = next_kernel();
  return kernel ? std::optional(kernel->traits().engine) : std::nullopt;
}

bool StreamImpl::next_may_block() noexcept {
  const Kernel* const kernel = next_kernel();
  return kernel && kernel->traits().may_block;
}

void StreamImpl::poison(const Kernel& kernel, LaunchSite site, std::exception_ptr error) {
  auto made =
      std::make_shared<Failure>(kernel.name(), site, device_index, number, std::move(error));
  failure.put(made);
  note_device_failure(device_index, made);
}

}  // namespace openreg
