#include "memory/pinned/pending_copies.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace openreg::memory {

// Note [Pending copies of pinned memory]
// A program may submit any number of asynchronous copies before it waits. So the list that a signal
// handler reads is a short one: there is a list for each of some sets of blocks, and an addition
// replaces only that of its own block. The limit of a list is the limit of a block. The total is
// limited, too, because the kernel limits the number of mappings of a process, of which each run of
// protected pages needs one, and another one for the open pages behind it.
namespace {

constexpr std::size_t kMostRunsOfOne = 64;

constexpr auto kAge = [](const PendingCopies::Copy& copy) { return copy->age; };

}  // namespace

PendingCopy::PendingCopy(PinnedWindows::Block block, Footprint footprint, bool written,
                         SubmissionId submission, std::string description)
    : block(block),
      footprint(std::move(footprint)),
      written(written),
      submission(submission),
      description(std::move(description)),
      first_page(PinnedWindows::page_of(this->footprint.begin())) {
  const auto page_size = PinnedWindows::page_size();
  const auto end = PinnedWindows::page_of(this->footprint.end() - 1) + page_size;
  if (this->footprint.is_contiguous()) {
    end_of_pages = end;
    runs = 1;
    return;
  }
  for (auto page = first_page; runs < kMostRunsOfOne;) {
    const auto next = this->footprint.first_in(page, end);
    if (!next) return;
    page = PinnedWindows::page_of(*next);
    do {
      page += page_size;
    } while (page < end && this->footprint.first_in(page, page + page_size));
    end_of_pages = page;
    ++runs;
  }
}

bool PendingCopy::replaces(const PendingCopy& other) const noexcept {
  return submission.stream == other.submission.stream &&
         submission.number >= other.submission.number && written >= other.written &&
         footprint.covers(other.footprint);
}

std::size_t PendingCopies::shard_of(PinnedWindows::Block block) noexcept {
  constexpr std::uint64_t kSpread = 0x9e3779b97f4a7c15;
  return static_cast<std::uint64_t>(block.begin) * kSpread >> 56;
}

// Takes the copies out of the lists that signal handlers read, and adds one.
void PendingCopies::take_out(List& taken, const Copy* added) {
  static_assert(kShards == std::size_t{1} << (64 - 56));
  std::ranges::sort(taken, {},
                    [](const Copy& copy) { return std::pair(shard_of(copy->block), copy->age); });
  const auto publish = [&](std::size_t shard, auto first, auto last, const Copy* more) {
    List left;
    {
      const auto now = shards_[shard].read();
      left.reserve(now->size() + 1);
      std::ranges::set_difference(now->begin(), now->end(), first, last, std::back_inserter(left),
                                  {}, kAge, kAge);
    }
    if (more != nullptr) left.push_back(*more);
    shards_[shard].replace(std::move(left));
  };
  for (auto first = taken.begin(); first != taken.end();) {
    const auto shard = shard_of((*first)->block);
    const auto last = std::find_if(
        first, taken.end(), [&](const Copy& copy) { return shard_of(copy->block) != shard; });
    const bool adds = added != nullptr && shard_of((*added)->block) == shard;
    publish(shard, first, last, adds ? std::exchange(added, nullptr) : nullptr);
    first = last;
  }
  if (added != nullptr) publish(shard_of((*added)->block), taken.end(), taken.end(), added);
}

PendingCopies::BySubmission::iterator PendingCopies::take_into(List& taken,
                                                               BySubmission::iterator at) {
  const auto found = by_age_.find(std::get<2>(*at));
  runs_ -= found->second->runs;
  taken.push_back(std::move(found->second));
  by_age_.erase(found);
  return by_submission_.erase(at);
}

PendingCopies::List PendingCopies::add(std::shared_ptr<PendingCopy> copy) {
  List taken;
  const auto take = [&](const PendingCopy& each) {
    take_into(taken,
              by_submission_.find({each.submission.stream, each.submission.number, each.age}));
  };
  {
    const auto of_shard = of_block(copy->block);
    for (const auto& each : *of_shard) {
      if (copy->replaces(*each)) take(*each);
    }
    // The first that has not been taken.
    if (of_shard->size() - taken.size() >= kMostOfOneBlock) {
      for (const auto& each : *of_shard) {
        if (!by_age_.contains(each->age)) continue;
        take(*each);
        break;
      }
    }
  }
  while (!by_age_.empty() && runs_ + copy->runs > kMostRuns) take(*by_age_.begin()->second);
  copy->age = next_age_++;
  runs_ += copy->runs;
  by_submission_.insert({copy->submission.stream, copy->submission.number, copy->age});
  const Copy added = by_age_.emplace_hint(by_age_.end(), copy->age, std::move(copy))->second;
  take_out(taken, &added);
  return taken;
}

PendingCopies::List PendingCopies::take(SubmissionId submission) {
  List taken;
  auto at = by_submission_.lower_bound({submission.stream, submission.number, 0});
  while (at != by_submission_.end() && std::get<0>(*at) == submission.stream &&
         std::get<1>(*at) == submission.number)
    at = take_into(taken, at);
  take_out(taken);
  return taken;
}

PendingCopies::List PendingCopies::take_seen(const VectorClock& seen) {
  List taken;
  for (auto at = by_submission_.begin(); at != by_submission_.end();) {
    const auto stream = std::get<0>(*at);
    const auto number = seen.number_of(stream);
    while (at != by_submission_.end() && std::get<0>(*at) == stream && std::get<1>(*at) <= number)
      at = take_into(taken, at);
    constexpr auto kLast = std::numeric_limits<std::uint64_t>::max();
    at = by_submission_.upper_bound({stream, kLast, kLast});
  }
  take_out(taken);
  return taken;
}

PendingCopies::List PendingCopies::take_block(PinnedWindows::Block block) {
  List taken;
  {
    const auto of_shard = of_block(block);
    for (const auto& each : *of_shard) {
      if (block.contains(each->footprint.begin()))
        take_into(taken, by_submission_.find(
                             {each->submission.stream, each->submission.number, each->age}));
    }
  }
  take_out(taken);
  return taken;
}

PendingCopies::List PendingCopies::take_all() {
  List taken;
  for (auto at = by_submission_.begin(); at != by_submission_.end();) at = take_into(taken, at);
  take_out(taken);
  return taken;
}

}  // namespace openreg::memory
