#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "memory/footprint.h"
#include "memory/pinned/pinned_windows.h"
#include "memory/pinned/signal_safe_snapshot.h"
#include "runtime/happens_before.h"

namespace openreg::memory {

/// An access of an asynchronous copy to pinned memory, which hosts may not have seen complete.
struct PendingCopy {
  enum class Report : std::uint8_t { kNone, kBegun, kDone };

  /// The footprint is not empty and lies in the block.
  PendingCopy(PinnedWindows::Block block, Footprint footprint, bool written,
              SubmissionId submission, std::string description);

  bool is_reported() const noexcept { return report == Report::kDone; }

  const PinnedWindows::Block block;
  const Footprint footprint;
  const bool written;
  const SubmissionId submission;
  const std::string description;
  std::uint64_t age = 0;  // the smaller the older; set by PendingCopies
  // Its pages, by their first bytes, and how many runs they make: of a copy with gaps of pages, the
  // first ones. Each run needs a mapping in the kernel, which allows some ten thousand.
  const std::uintptr_t first_page;
  std::uintptr_t end_of_pages = 0;
  std::size_t runs = 0;
  mutable std::atomic<Report> report{Report::kNone};

  // These are async-signal-safe.

  /// Whether a host that reads, or writes, the byte conflicts with it.
  bool conflicts(std::uintptr_t address, bool writes) const noexcept {
    return (written || writes) && footprint.first_in(address, address + 1);
  }
  /// Whether hosts that wait for this also wait for `other`, of which this says all.
  bool replaces(const PendingCopy& other) const noexcept;
};

/// The copies that are pending, and limits of their number: beyond them, the oldest are taken out.
/// Adding one takes the same time however many there are. Used under a lock, except of_block().
class PendingCopies {
 public:
  using Copy = std::shared_ptr<const PendingCopy>;
  using List = std::vector<Copy>;  // the oldest first

  static constexpr std::size_t kMostOfOneBlock = 512;
  static constexpr std::size_t kMostRuns = 8192;

  bool empty() const noexcept { return by_age_.empty(); }
  std::size_t size() const noexcept { return by_age_.size(); }

  /// Returns what it has taken out in return: copies that this one replaces or that are beyond the
  /// limits.
  List add(std::shared_ptr<PendingCopy> copy);
  // These take copies out and return them.
  List take(SubmissionId submission);
  List take_seen(const VectorClock& seen);
  List take_block(PinnedWindows::Block block);
  List take_all();

  /// The copies of this block, and of some others. Async-signal-safe.
  SignalSafeSnapshot<List>::Reading of_block(PinnedWindows::Block block) const noexcept {
    return shards_[shard_of(block)].read();
  }

 private:
  static constexpr std::size_t kShards = 256;
  using BySubmission = std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>>;

  static std::size_t shard_of(PinnedWindows::Block block) noexcept;
  BySubmission::iterator take_into(List& taken, BySubmission::iterator at);
  void take_out(List& taken, const Copy* added = nullptr);

  std::map<std::uint64_t, Copy> by_age_;
  BySubmission by_submission_;  // stream, number, age
  std::array<SignalSafeSnapshot<List>, kShards> shards_;
  std::uint64_t next_age_ = 0;
  std::size_t runs_ = 0;  // of all
};

}  // namespace openreg::memory
