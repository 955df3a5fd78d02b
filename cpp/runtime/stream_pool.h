#pragma once

#include <cstdint>
#include <vector>

#include "runtime/failure.h"
#include "runtime/mutex.h"
#include "runtime/strand.h"

namespace openreg {

/// The streams of one device. Thread safe; never destroyed, and neither are its streams.
class StreamPool {
 public:
  explicit StreamPool(int device);

  /// Throws Error if there is no such device, or the settings are malformed.
  static StreamPool& of(int device);
  /// Those of all devices; empty if no device has been used.
  static std::vector<StreamPool*> all() noexcept;

  Strand& default_stream() noexcept { return *default_; }
  Strand& create(Priority priority);
  /// Does nothing for the default stream.
  void destroy(Strand& strand) noexcept;
  /// Throws Error if there is no such stream.
  Strand& find(std::int64_t id);

  /// Includes destroyed ones: their work and their failures still belong to the device.
  std::vector<Strand*> streams() const;
  /// The failures of all streams; one that was passed on to other streams may occur several times.
  std::vector<FailurePtr> failures() const;
  /// The failure that occurred first, removed from all streams that it poisons. Null if there is
  /// none.
  FailurePtr take_oldest_failure();

 private:
  Strand* reopen(Priority priority);
  bool take(const Failure& failure);

  const int device_;
  Strand* const default_;
  mutable Mutex mutex_;
  std::vector<Strand*> streams_ OPENREG_GUARDED_BY(mutex_);  // by id
  // Destroyed; reused once they have drained.
  std::vector<Strand*> closed_ OPENREG_GUARDED_BY(mutex_);
  // Of streams that have been reused.
  std::vector<FailurePtr> orphaned_ OPENREG_GUARDED_BY(mutex_);
};

}  // namespace openreg
