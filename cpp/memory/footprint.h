#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace openreg::memory {

/// The bytes that a strided tensor occupies: runs of equal length at regular distances. A value
/// type.
class Footprint {
 public:
  Footprint() = default;
  /// The footprint of contiguous memory.
  Footprint(const void* begin, std::size_t bytes)
      : begin_(reinterpret_cast<std::uintptr_t>(begin)), run_(bytes) {}
  /// The footprint of a tensor whose first element is at `begin`. Sizes are in elements of
  /// `itemsize` bytes; strides, which are not negative, too.
  Footprint(const void* begin, std::size_t itemsize, std::span<const std::int64_t> sizes,
            std::span<const std::int64_t> strides);

  bool empty() const noexcept { return run_ == 0; }
  bool is_contiguous() const noexcept { return dimensions_.empty(); }
  std::uintptr_t begin() const noexcept { return begin_; }
  /// The address behind the last byte.
  std::uintptr_t end() const noexcept { return begin_ + extent(); }
  /// Number of bytes, if no two runs overlap.
  std::size_t bytes() const noexcept;

  /// Whether each byte of `other` is certainly one of this.
  bool covers(const Footprint& other) const noexcept;
  bool operator==(const Footprint&) const = default;

  /// The first of its bytes in [begin, end); none also if finding it takes too many steps, as with
  /// common_byte().
  std::optional<std::uintptr_t> first_in(std::uintptr_t begin, std::uintptr_t end) const;
  /// The end of a run of bytes that holds `byte`; none if `byte` is not one of its bytes, or if
  /// finding it takes too many steps, as with common_byte().
  std::optional<std::uintptr_t> end_of_run_at(std::uintptr_t byte) const;

  /// A byte that both occupy, the first one if the strides are nested as those of tensors usually
  /// are. None if there is no such byte, or if finding one takes more than some ten thousand steps.
  friend std::optional<std::uintptr_t> common_byte(const Footprint& a, const Footprint& b);

 private:
  struct Dimension {
    std::uint64_t count;
    std::uint64_t stride;  // bytes

    bool operator==(const Dimension&) const = default;
  };

  std::uint64_t extent() const noexcept { return extent(dimensions_.size()); }
  std::uint64_t extent(std::size_t dimensions) const noexcept;
  std::uint64_t runs() const noexcept;
  /// The beginning of the first run that has bytes in [begin, end). Takes from `steps`, the number
  /// of steps that are left.
  std::optional<std::uintptr_t> run_in(std::uintptr_t begin, std::uintptr_t end, int& steps) const;
  bool may_share_bytes(const Footprint& other) const noexcept;

  std::uintptr_t begin_ = 0;
  std::uint64_t run_ = 0;              // bytes
  std::vector<Dimension> dimensions_;  // ascending strides, each greater than the run
};

std::optional<std::uintptr_t> common_byte(const Footprint& a, const Footprint& b);

}  // namespace openreg::memory
