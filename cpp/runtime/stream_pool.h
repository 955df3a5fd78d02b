#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "runtime/failure.h"
#include "runtime/stream_impl.h"

namespace openreg {

/// For debuggers, which stop all other threads: what the streams run and wait for, one in each
/// line. Allocates nothing and waits for no lock. The next call overwrites the text.
extern "C" const char* openreg_dump_streams() noexcept;

/// The streams of one device. Thread safe; never destroyed, and neither are its streams.
class StreamPool {
 public:
  explicit StreamPool(int device);

  /// The pool of a device. Throws Error if there is no such device, or the settings are malformed.
  static StreamPool& of(int device);
  /// The pools of all devices; empty if no device has been used.
  static std::span<StreamPool* const> all() noexcept;

  StreamImpl& default_stream() noexcept { return *default_; }
  StreamImpl& create(Priority priority, std::uint64_t queue_limit);
  /// Destroys a stream, as destroy_stream() does. Does nothing for the default stream.
  void destroy(StreamImpl& stream) noexcept;
  /// The live stream with this id. Throws Error if there is none.
  StreamImpl& find(std::int64_t id);

  /// All streams of the device, and destroyed ones: their work and their failures still belong to
  /// it.
  std::vector<StreamImpl*> streams() const;
  /// The failures of all streams; one that was passed on to other streams may occur several times.
  std::vector<FailurePtr> failures() const;
  /// The failure that occurred first, removed from all streams that it poisons. Null if there is
  /// none.
  FailurePtr take_oldest_failure();

 private:
  friend const char* openreg_dump_streams() noexcept;
  StreamImpl* reopen(Priority priority, std::uint64_t queue_limit);
  bool take(const Failure& failure);

  const int device_;
  StreamImpl* const default_;
  mutable Mutex mutex_;
  std::vector<StreamImpl*> streams_ OPENREG_GUARDED_BY(mutex_);  // by id
  // Destroyed; reused once they have drained.
  std::vector<StreamImpl*> closed_ OPENREG_GUARDED_BY(mutex_);
  // Failures of streams that have been reused.
  std::vector<FailurePtr> orphaned_ OPENREG_GUARDED_BY(mutex_);
};

}  // namespace openreg
