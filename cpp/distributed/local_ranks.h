#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "base/mutex.h"
#include "runtime/stream.h"

namespace openreg::distributed {

/// The ranks of a process group that are threads of this process. They share memory, so the race
/// detector needs to know what their collectives order (Milestones). Thread safe.
class LocalRanks {
 public:
  /// What a rank does in order: its collectives, or its sends to a peer with a tag.
  struct Sequence {
    int rank;
    int peer = -1;
    int tag = 0;
    auto operator<=>(const Sequence&) const = default;  // NOLINT(modernize-use-nullptr): Clang's 0
  };

  /// The local ranks of the group whose store this is. The calling thread makes `rank`. Null if the
  /// store cannot tell which group it is. A store in memory means that all ranks are local,
  /// also those that do not exist yet.
  static std::shared_ptr<LocalRanks> join(c10d::Store& store, int rank, int size);
  void leave(int rank);

  /// The ranks other than this one.
  std::vector<int> others(int rank);
  /// The rank's part with this number, from 1, begins after what the stream has been given so far.
  void begin(Sequence sequence, std::uint64_t number, const Stream& stream);
  /// The part of another rank begins before what the stream is given from now on.
  void wait(Sequence sequence, std::uint64_t number, const Stream& stream);

 private:
  static std::uint64_t next_id() noexcept;
  std::uint32_t number_of(Sequence sequence) OPENREG_REQUIRES(mutex_);

  const std::uint64_t id_ = next_id();
  Mutex mutex_;
  // By rank: the number of its thread; 0: it does not exist yet, or any more.
  std::map<int, std::uint32_t> homes_ OPENREG_GUARDED_BY(mutex_);
  std::map<Sequence, std::uint32_t> numbers_ OPENREG_GUARDED_BY(mutex_);  // of milestones
};

}  // namespace openreg::distributed
