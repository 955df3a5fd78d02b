#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

// Annotations for Clang's thread-safety analysis, which scripts/lint runs: which mutex guards what.
// They are empty for other compilers. https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#if defined(__clang__)
#define OPENREG_THREAD_SAFETY(...) __attribute__((__VA_ARGS__))
#else
#define OPENREG_THREAD_SAFETY(...)
#endif

#define OPENREG_CAPABILITY(name) OPENREG_THREAD_SAFETY(capability(name))
#define OPENREG_SCOPED_CAPABILITY OPENREG_THREAD_SAFETY(scoped_lockable)
/// For a variable: it is used with the mutex held.
#define OPENREG_GUARDED_BY(mutex) OPENREG_THREAD_SAFETY(guarded_by(mutex))
/// For a mutex: it is never taken while the other one is held.
#define OPENREG_ACQUIRED_BEFORE(mutex) OPENREG_THREAD_SAFETY(acquired_before(mutex))
/// For functions: they are called with the mutex held, or without holding it.
#define OPENREG_REQUIRES(mutex) OPENREG_THREAD_SAFETY(requires_capability(mutex))
#define OPENREG_EXCLUDES(mutex) OPENREG_THREAD_SAFETY(locks_excluded(mutex))
/// For functions: they take the mutex, or release it.
#define OPENREG_ACQUIRE(...) OPENREG_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define OPENREG_RELEASE(...) OPENREG_THREAD_SAFETY(release_capability(__VA_ARGS__))
/// For a function: the mutex is held, though the analysis cannot see it.
#define OPENREG_ASSERT_HELD(...) OPENREG_THREAD_SAFETY(assert_capability(__VA_ARGS__))

namespace openreg {

/// A std::mutex with annotations, which libstdc++ lacks.
class OPENREG_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() noexcept = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() OPENREG_ACQUIRE() { mutex_.lock(); }
  void unlock() OPENREG_RELEASE() { mutex_.unlock(); }
  bool try_lock() OPENREG_THREAD_SAFETY(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  friend class UniqueLock;
  std::mutex mutex_;
};

/// A std::lock_guard with annotations.
template <class MutexType>
class OPENREG_SCOPED_CAPABILITY LockGuard {
 public:
  explicit LockGuard(MutexType& mutex) OPENREG_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~LockGuard() OPENREG_RELEASE() { mutex_.unlock(); }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  MutexType& mutex_;
};

/// A std::unique_lock of a Mutex.
class OPENREG_SCOPED_CAPABILITY UniqueLock {
 public:
  explicit UniqueLock(Mutex& mutex) OPENREG_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~UniqueLock() OPENREG_RELEASE() = default;
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;

  void lock() OPENREG_ACQUIRE() { lock_.lock(); }
  void unlock() OPENREG_RELEASE() { lock_.unlock(); }
  /// Waits for a notification. May return without one: call it in a loop over the condition.
  void wait(std::condition_variable& condition) { condition.wait(lock_); }
  /// Like wait(). False: `end` has been reached.
  bool wait_until(std::condition_variable& condition, std::chrono::steady_clock::time_point end) {
    return condition.wait_until(lock_, end) == std::cv_status::no_timeout;
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace openreg
