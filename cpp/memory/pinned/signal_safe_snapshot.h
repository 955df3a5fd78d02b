#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

namespace openreg::memory {

/// A value that signal handlers read. It never changes, but is replaced as a whole; values before
/// it are freed when no reader can use them any more.
template <class T>
class SignalSafeSnapshot {
 public:
  class Reading {
   public:
    explicit Reading(const SignalSafeSnapshot& of) noexcept : readers_(of.readers_) {
      readers_.fetch_add(1);
      value_ = of.current_.load();
    }
    ~Reading() { readers_.fetch_sub(1); }
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

    const T& operator*() const noexcept { return *value_; }
    const T* operator->() const noexcept { return value_; }

   private:
    std::atomic<int>& readers_;
    const T* value_;
  };

  SignalSafeSnapshot() = default;  // an empty value
  SignalSafeSnapshot(const SignalSafeSnapshot&) = delete;
  SignalSafeSnapshot& operator=(const SignalSafeSnapshot&) = delete;

  /// The newest value, valid as long as the result. Async-signal-safe.
  Reading read() const noexcept { return Reading(*this); }

  /// Called by one thread at a time.
  void replace(T value) {
    values_.push_back(std::make_unique<const T>(std::move(value)));
    current_.store(values_.back().get());
    // All of these operations are sequentially consistent: a reader that is not counted yet will
    // find the new value.
    if (readers_.load() == 0) values_.erase(values_.begin(), values_.end() - 1);
  }

 private:
  inline static const T kEmpty{};

  std::vector<std::unique_ptr<const T>> values_;  // the current one is the last
  std::atomic<const T*> current_{&kEmpty};
  mutable std::atomic<int> readers_{0};
};

}  // namespace openreg::memory
