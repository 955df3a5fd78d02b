#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/vector_clock.h"

namespace openreg {

/// A small number of the calling thread, from 1; no other thread ever gets it.
std::uint32_t this_thread_number() noexcept;

/// Points in time that are no submissions, but have ids as if they were: the parts of a rank in the
/// collectives of its process group, if ranks are threads of this process. Another rank's stream
/// comes after such a milestone as soon as it has been given its own part, perhaps before this
/// rank's host has got so far. So a clock may include milestones that are still ahead. See Note
/// [Milestones] in milestones.cpp. Used under a lock.
class Milestones {
 public:
  /// Adds a sequence, whose milestones have this number as their stream, of a rank of the group.
  /// `home`: the thread of the rank; 0 if it is unknown.
  void add(std::uint32_t sequence, std::uint64_t group, std::uint32_t home);
  bool empty() const noexcept { return sequences_.empty(); }
  void set_home(std::uint32_t sequence, std::uint32_t home);

  /// Declares that all that `before` includes happens before this milestone and the later ones of
  /// its sequence.
  void reach(SubmissionId milestone, const VectorClock& before);
  /// Ends the sequence: it has no more milestones.
  void end(std::uint32_t sequence);

  /// Adds to the clock what happens before the milestones that it includes. True: some of them are
  /// still ahead.
  bool complete(VectorClock& clock) const;
  /// The milestones that the clock includes and that are still ahead.
  std::vector<SubmissionId> ahead(const VectorClock& clock) const;
  /// Whether the milestone is ahead, and may turn out to lie between what two threads, or one, have
  /// submitted.
  bool may_lie_between(SubmissionId milestone, std::uint32_t first, std::uint32_t second) const;

 private:
  static constexpr std::size_t kMostClocks = 16;

  struct Sequence {
    std::uint64_t group;
    std::uint32_t home;
    std::uint64_t reached = 0;
    std::map<std::uint64_t, VectorClock> before{};  // each includes those before it
  };

  std::map<std::uint32_t, Sequence> sequences_;
};

}  // namespace openreg
