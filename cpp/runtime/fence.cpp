#include "runtime/fence.h"

#include "base/test_point.h"
#include "runtime/brief_run.h"
#include "runtime/scheduler.h"

namespace openreg {

void Fence::complete(FailurePtr failure) noexcept {
  failure_ = std::move(failure);
  if (timed_) time_ = Clock::now();
}

bool Fence::complete(std::exception_ptr error) noexcept {
  const LockGuard lock(mutex_);
  if (abandoned_) return false;
  error_ = std::move(error);
  return true;
}

std::exception_ptr Fence::abandon() noexcept {
  const LockGuard lock(mutex_);
  abandoned_ = true;
  return error_;
}

StreamList Fence::close() noexcept {
  fired_.store(true, std::memory_order_release);
  while (Waiter* waiter = waiters_.pop_front()) {
    waiter->watching = false;
    waiter->wake();  // under the lock: otherwise the waiter could be destroyed first
  }
  return std::exchange(parked_, {});
}

void Fence::fire() noexcept {
  StreamList parked;
  {
    const LockGuard lock(mutex_);
    parked = close();
  }
  if (!parked.empty()) release_parked(parked);
}

void Fence::signal(std::exception_ptr error) noexcept {
  StreamList parked;
  {
    const LockGuard lock(mutex_);
    if (fired_.load(std::memory_order_relaxed)) return;
    error_ = std::move(error);
    parked = close();
  }
  if (!parked.empty()) run_released(parked);
}

FailurePtr Fence::failure_for(const StreamImpl& stream, LaunchSite site) const {
  if (!error_) return failure_;
  return std::make_shared<Failure>(name_, site, stream.device_index, stream.number, error_);
}

bool Fence::park(StreamImpl& stream) noexcept {
  const LockGuard lock(mutex_);
  if (fired_.load(std::memory_order_relaxed)) return false;
  reach(TestPoint::kWillPark);
  // Parked first, then linked: a thread that takes the list finds only parked streams.
  Scheduler::get().set_parked(stream, *this);
  reach(TestPoint::kParking);
  parked_.push_back(stream);
  return true;
}

bool Fence::add(Waiter& waiter) noexcept {
  const LockGuard lock(mutex_);
  if (fired_.load(std::memory_order_relaxed)) return false;
  waiters_.push_back(waiter);
  waiter.watching = true;
  return true;
}

void Fence::remove(Waiter& waiter) noexcept {
  const LockGuard lock(mutex_);
  if (!waiter.watching) return;
  waiters_.remove(waiter);
  waiter.watching = false;
}

}  // namespace openreg
