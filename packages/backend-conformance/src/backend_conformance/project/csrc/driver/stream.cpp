#include "driver/stream.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <utility>

#include "driver/memory.h"

namespace torch_acme::driver {

namespace {

std::array<std::atomic<bool>, kDevices> used;
std::atomic<bool> bad_fork;

void note_use(int device) {
  if (bad_fork) {
    throw std::runtime_error(
        "acme: the device cannot be used in a forked child of a process that has used it; start "
        "the child with the method 'spawn'");
  }
  if (used[device].exchange(true)) return;
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { bad_fork = true; }); });
}

// One per device and id. Never destroyed: their threads run until the process ends.
using Streams = std::array<std::array<std::unique_ptr<Stream>, kStreams>, kDevices>;

const Streams& streams() {
  static const auto& all = *[] {
    auto* const made = new Streams;
    for (int device = 0; device < kDevices; ++device)
      for (int id = 0; id < kStreams; ++id)
        (*made)[device][id] = std::make_unique<Stream>(device, id);
    return made;
  }();
  return all;
}

}  // namespace

void Stream::submit(std::function<void()> command) {
  note_use(device_);
  const std::lock_guard lock(mutex_);
  commands_.push_back(std::move(command));
  if (!std::exchange(has_thread_, true)) std::thread([this] { run(); }).detach();
  changed_.notify_all();
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !commands_.empty(); });
    auto command = std::move(commands_.front());
    lock.unlock();
    std::exception_ptr failure;
    try {
      command();
    } catch (...) {
      failure = std::current_exception();
    }
    command = nullptr;  // what it holds is released before anyone sees that it has completed
    lock.lock();
    if (failure && !failure_) failure_ = failure;
    commands_.pop_front();
    changed_.notify_all();
  }
}

bool Stream::query() {
  if (bad_fork) return true;
  const std::lock_guard lock(mutex_);
  if (!commands_.empty()) return false;
  if (failure_) std::rethrow_exception(failure_);
  return true;
}

void Stream::synchronize() {
  if (bad_fork) return;  // the commands belong to the parent
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return commands_.empty(); });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

struct Event::Mark {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::chrono::steady_clock::time_point time;

  void reach() {
    const std::lock_guard lock(mutex);
    reached = true;
    time = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
};

void Event::record(Stream& stream) {
  const auto mark = std::make_shared<Mark>();
  stream.submit([mark] { mark->reach(); });
  mark_ = mark;
}

void Event::wait(Stream& stream) const {
  if (mark_) stream.submit([mark = mark_] { mark->wait(); });
}

bool Event::query() const { return !mark_ || mark_->is_reached(); }

void Event::synchronize() const {
  if (mark_) mark_->wait();
}

double Event::elapsed(const Event& start, const Event& end) {
  return std::chrono::duration<double, std::milli>(end.mark_->time - start.mark_->time).count();
}

Stream& stream(int device, int id) { return *streams()[device][id]; }

Stream& stream_from_pool(int device, bool high_priority) {
  static std::array<std::array<std::atomic<unsigned>, 2>, kDevices> next;
  const int place = static_cast<int>(next[device][high_priority]++ % kPoolSize);
  return stream(device, 1 + place + (high_priority ? kPoolSize : 0));
}

void synchronize_device(int device) {
  for (int id = 0; id < kStreams; ++id) stream(device, id).synchronize();
}

bool is_used(int device) noexcept { return used[device]; }

bool in_bad_fork() noexcept { return bad_fork; }

}  // namespace torch_acme::driver
