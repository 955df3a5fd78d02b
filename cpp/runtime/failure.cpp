#include "runtime/failure.h"

#include <cstdio>
#include <utility>

#include "base/device_name.h"
#include "base/error.h"
#include "runtime/command_error.h"

namespace openreg {

namespace {

std::atomic<std::uint64_t> g_failures{0};

}  // namespace

Failure::Failure(const char* source, LaunchSite site, int device, std::int64_t stream,
                 std::exception_ptr cause)
    : source_(source),
      site_(site),
      device_(device),
      stream_(stream),
      cause_(std::move(cause)),
      sequence_(g_failures.fetch_add(1, std::memory_order_relaxed)) {}

void Failure::raise() {
  set_collected();
  throw CommandError(source_, site_, device_, stream_, cause_);
}

void Failure::print_if_uncollected() noexcept {
  if (set_collected()) return;
  try {
    std::fprintf(stderr, "%s; no later call collected this error\n", describe().c_str());
  } catch (const std::exception&) {  // no memory for the sentence
    std::fprintf(stderr, "openreg: %s failed; no later call collected this error\n", source_);
  }
}

std::string Failure::describe() const {
  // PyTorch's errors continue with a backtrace.
  const std::string text = describe_cause(cause_);
  return "openreg: " + std::string(source_) + " failed on " + device_name(device_) + ", stream " +
         std::to_string(stream_) + launched_by(site_) + ": " + text.substr(0, text.find('\n'));
}

void FailureSlot::put(FailurePtr failure) noexcept {
  const LockGuard lock(mutex_);
  if (failure_) return;
  failure_ = std::move(failure);
  full_.store(true, std::memory_order_release);
}

FailurePtr FailureSlot::get() const noexcept {
  if (!full()) return nullptr;
  const LockGuard lock(mutex_);
  return failure_;
}

FailurePtr FailureSlot::take() noexcept {
  if (!full()) return nullptr;
  const LockGuard lock(mutex_);
  full_.store(false, std::memory_order_release);
  return std::exchange(failure_, nullptr);
}

FailurePtr FailureSlot::take(const Failure* expected) noexcept {
  if (!expected || !full()) return nullptr;
  const LockGuard lock(mutex_);
  if (failure_.get() != expected) return nullptr;
  full_.store(false, std::memory_order_release);
  return std::exchange(failure_, nullptr);
}

}  // namespace openreg
