#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace openreg::memory {

/// A changing number, its highest value, and what was added and removed, each since its last reset.
/// The same as PyTorch's Stat.
struct Stat {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;
  std::int64_t freed = 0;

  void add(std::int64_t amount) {
    current += amount;
    allocated += amount;
    peak = std::max(peak, current);
  }
  void remove(std::int64_t amount) {
    current -= amount;
    freed += amount;
  }

  bool operator==(const Stat&) const = default;
};

enum class SizeClass : std::uint8_t { kSmall, kLarge };
inline constexpr std::size_t kSizeClasses = 2;

/// A Stat over all blocks, and over the small and the large ones. Each allocation changes
/// several of them, so only what cannot be computed later is kept: of the sum over both classes
/// only the peak, while what was added follows from the rest. A number is at its highest when it
/// begins to fall or when it is read, so peaks are noted only then.
class ClassStat {
 public:
  void add(SizeClass size_class, std::int64_t amount) {
    parts_[index(size_class)].current += amount;
  }
  void remove(SizeClass size_class, std::int64_t amount) {
    auto& part = parts_[index(size_class)];
    // Stores only if there is a new peak, which is rare.
    if (part.current > part.peak) part.peak = part.current;
    if (current() > peak_) peak_ = current();
    part.current -= amount;
    part.freed += amount;
  }
  /// Adds or removes, by the sign of `amount`: CUDA counts a block that results from several
  /// operations as one change.
  void change(SizeClass size_class, std::int64_t amount) {
    amount >= 0 ? add(size_class, amount) : remove(size_class, -amount);
  }

  std::int64_t current() const { return parts_[0].current + parts_[1].current; }
  Stat of(SizeClass size_class) const { return stat(parts_[index(size_class)]); }
  Stat all() const {
    const auto& [small, large] = parts_;
    return stat({.current = current(),
                 .peak = std::max(earlier_peak_, peak_),
                 .freed = small.freed + large.freed,
                 .at_reset = small.at_reset + large.at_reset});
  }

  void reset_peak() {
    for (auto& part : parts_) part.peak = part.current;
    peak_ = current();
    earlier_peak_ = 0;
  }
  /// The peak of both classes together since the last call, or since reset_peak().
  std::int64_t take_peak() {
    const auto recent = std::max(peak_, current());
    earlier_peak_ = std::max(earlier_peak_, recent);
    peak_ = current();
    return recent;
  }
  void reset_accumulated() {
    for (auto& part : parts_) {
      part.at_reset = part.current;
      part.freed = 0;
    }
  }

 private:
  struct Part {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    std::int64_t freed = 0;
    std::int64_t at_reset = 0;  // the current number when `freed` was set to zero
  };
  static std::size_t index(SizeClass size_class) { return static_cast<std::size_t>(size_class); }
  static Stat stat(const Part& p) {
    return {p.current, std::max(p.peak, p.current), p.current + p.freed - p.at_reset, p.freed};
  }

  std::array<Part, kSizeClasses> parts_;
  std::int64_t peak_ = 0;          // since the last take_peak()
  std::int64_t earlier_peak_ = 0;  // before that
};

/// The highest values in a part of the program, in bytes.
struct Peak {
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;

  bool operator==(const Peak&) const = default;
};

/// What PyTorch reports of an allocator (torch.accelerator.memory_stats), by PyTorch's names.
struct Statistics {
  ClassStat allocation;               ///< blocks that the program holds
  ClassStat allocated_bytes;          ///< bytes in `allocation`, with rounding
  ClassStat requested_bytes;          ///< bytes in `allocation`, as requested
  ClassStat active;                   ///< blocks that the program holds or that streams still use
  ClassStat active_bytes;             ///< bytes in `active`
  ClassStat inactive_split;           ///< free blocks whose segment also has other blocks
  ClassStat inactive_split_bytes;     ///< bytes in `inactive_split`
  ClassStat segment;                  ///< segments mapped from the device
  ClassStat reserved_bytes;           ///< bytes in `segment`
  ClassStat oversize_allocations;     ///< held blocks that max_split_size keeps whole
  ClassStat oversize_segments;        ///< segments of such blocks
  std::int64_t device_maps = 0;       ///< segments mapped so far
  std::int64_t device_unmaps = 0;     ///< segments returned so far
  std::int64_t retries = 0;           ///< allocations that had to empty the cache
  std::int64_t out_of_memory = 0;     ///< allocations that failed even after that
  std::int64_t synchronizations = 0;  ///< waits for all streams, to return memory

  /// Begins a scope, whose peak is independent of other scopes and of resets. Returns its number.
  int begin_scope() {
    note_peaks();
    scopes_[++last_scope_] = {allocated_bytes.current(), reserved_bytes.current()};
    return last_scope_;
  }
  /// The peak so far. Throws std::out_of_range if the scope has ended.
  Peak peak_of_scope(int scope) {
    note_peaks();
    return scopes_.at(scope);
  }
  Peak end_scope(int scope) {
    const auto peak = peak_of_scope(scope);
    scopes_.erase(scope);
    return peak;
  }

  void reset_peak() {
    note_peaks();
    for (auto* stat : stats()) stat->reset_peak();
  }
  void reset_accumulated() {
    for (auto* stat : stats()) stat->reset_accumulated();
    device_maps = device_unmaps = retries = out_of_memory = synchronizations = 0;
  }

 private:
  void note_peaks() {
    const Peak recent{allocated_bytes.take_peak(), reserved_bytes.take_peak()};
    for (auto& [_, peak] : scopes_) {
      peak.allocated = std::max(peak.allocated, recent.allocated);
      peak.reserved = std::max(peak.reserved, recent.reserved);
    }
  }
  std::array<ClassStat*, 11> stats() {
    return {&allocation,     &allocated_bytes,      &requested_bytes,      &active,
            &active_bytes,   &inactive_split,       &inactive_split_bytes, &segment,
            &reserved_bytes, &oversize_allocations, &oversize_segments};
  }

  std::map<int, Peak> scopes_;
  int last_scope_ = 0;
};

}  // namespace openreg::memory
