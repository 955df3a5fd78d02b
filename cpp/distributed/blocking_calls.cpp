#include "distributed/blocking_calls.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "base/thread.h"

namespace openreg::distributed {

namespace {

class Threads {
 public:
  static Threads& get() {
    static Threads& threads = *new Threads;  // they use it until the process ends
    return threads;
  }

  void run(std::function<void()> call) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    if (calls_.size() <= idle_) {
      wanted_.notify_one();
    } else {
      try {
        start_detached_thread("openreg-occl", [this] { serve(); });
      } catch (...) {
        calls_.pop_back();
        throw;
      }
    }
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      while (calls_.empty()) {
        ++idle_;
        const auto status = wanted_.wait_for(lock, std::chrono::seconds(5));
        --idle_;
        if (status == std::cv_status::timeout && calls_.empty()) return;
      }
      auto call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      call = nullptr;
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<std::function<void()>> calls_;
  std::size_t idle_ = 0;
};

}  // namespace

void run_on_separate_thread(std::function<void()> call) { Threads::get().run(std::move(call)); }

}  // namespace openreg::distributed
