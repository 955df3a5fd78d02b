#include "runtime/milestones.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <limits>
#include <utility>

namespace openreg {

// Note [Milestones]
// When a rank's part of an all_reduce has ended, those of all other ranks have begun, so all that
// their streams did before is complete. If the ranks are threads of one process, this orders
// accesses to memory that they share. But clocks are made when work is submitted, and the thread of
// one rank may be ahead of the others': when it submits what follows its part, another one may not
// have submitted its own part, nor even what comes before that. So the clock includes the other
// rank's *milestone*, by its number in the group, and what happens before that is added when it is
// known.
//
// As long as a milestone is ahead, what its rank submits may turn out to happen before it, and so
// may what other ranks have submitted, by collectives that are still to come. Nobody knows on which
// streams, nor whether other threads work for a rank, as autograd's do. So nothing is taken for
// unordered, except what the thread of a rank has submitted itself: its own part comes from this
// thread, too. This may miss a race, and reports none that does not exist.
//
// Of each sequence some clocks are kept. What an older milestone lacks is taken from a newer one,
// which may include more.

std::uint32_t this_thread_number() noexcept {
  static std::atomic<std::uint32_t> last{0};
  thread_local const std::uint32_t number = ++last;
  return number;
}

void Milestones::add(std::uint32_t sequence, std::uint64_t group, std::uint32_t home) {
  sequences_.emplace(sequence, Sequence{.group = group, .home = home});
}

void Milestones::set_home(std::uint32_t sequence, std::uint32_t home) {
  sequences_.at(sequence).home = home;
}

void Milestones::reach(SubmissionId milestone, const VectorClock& before) {
  auto& sequence = sequences_.at(milestone.stream);
  sequence.reached = std::max(sequence.reached, milestone.number);
  auto clock = before;
  if (!sequence.before.empty()) clock.join(sequence.before.rbegin()->second);
  sequence.before.insert_or_assign(milestone.number, std::move(clock));
  if (sequence.before.size() > kMostClocks) sequence.before.erase(sequence.before.begin());
}

void Milestones::end(std::uint32_t sequence) {
  sequences_.at(sequence).reached = std::numeric_limits<std::uint64_t>::max();
}

bool Milestones::complete(VectorClock& clock) const {
  bool changes = !empty();
  while (changes) {
    changes = false;
    for (const auto& [number, sequence] : sequences_) {
      const auto included = clock.number_of(number);
      if (included == 0 || sequence.before.empty()) continue;
      const auto after = sequence.before.upper_bound(included);
      const auto& before = after == sequence.before.begin() ? *after : *std::prev(after);
      changes |= clock.join(before.second);
    }
  }
  return std::ranges::any_of(sequences_, [&](const auto& each) {
    return clock.number_of(each.first) > each.second.reached;
  });
}

std::vector<SubmissionId> Milestones::ahead(const VectorClock& clock) const {
  std::vector<SubmissionId> milestones;
  for (const auto& [number, sequence] : sequences_) {
    const auto included = clock.number_of(number);
    if (included > sequence.reached) milestones.push_back({.stream = number, .number = included});
  }
  return milestones;
}

bool Milestones::may_lie_between(SubmissionId milestone, std::uint32_t first,
                                 std::uint32_t second) const {
  const auto found = sequences_.find(milestone.stream);
  if (found == sequences_.end() || milestone.number <= found->second.reached) return false;
  return first != second || std::ranges::none_of(sequences_, [&](const auto& each) {
           return each.second.group == found->second.group && each.second.home == first;
         });
}

}  // namespace openreg
