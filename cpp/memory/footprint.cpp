#include "memory/footprint.h"

#include <algorithm>
#include <numeric>

namespace openreg::memory {

namespace {

constexpr int kMostSteps = 1 << 15;

}  // namespace

Footprint::Footprint(const void* begin, std::size_t itemsize, std::span<const std::int64_t> sizes,
                     std::span<const std::int64_t> strides)
    : begin_(reinterpret_cast<std::uintptr_t>(begin)), run_(itemsize) {
  // Nearly all tensors are contiguous, in the order of their dimensions.
  for (auto i = sizes.size();; --i) {
    if (i == 0) return;
    const auto stride = static_cast<std::uint64_t>(strides[i - 1]) * itemsize;
    if (sizes[i - 1] != 1 && (sizes[i - 1] == 0 || stride != run_)) break;
    run_ *= static_cast<std::uint64_t>(sizes[i - 1]);
  }
  run_ = itemsize;
  dimensions_.reserve(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) {
      run_ = 0;
      dimensions_.clear();
      return;
    }
    if (sizes[i] > 1 && strides[i] != 0) {
      dimensions_.push_back({static_cast<std::uint64_t>(sizes[i]),
                             static_cast<std::uint64_t>(strides[i]) * itemsize});
    }
  }
  std::ranges::sort(dimensions_, {}, &Dimension::stride);
  // Runs that touch or overlap are one; and a dimension that continues another extends it.
  std::size_t kept = 0;
  for (const auto& dimension : dimensions_) {
    if (kept == 0 && dimension.stride <= run_) {
      run_ += (dimension.count - 1) * dimension.stride;
    } else if (kept != 0 &&
               dimension.stride == dimensions_[kept - 1].count * dimensions_[kept - 1].stride) {
      dimensions_[kept - 1].count *= dimension.count;
    } else {
      dimensions_[kept++] = dimension;
    }
  }
  dimensions_.resize(kept);
}

std::uint64_t Footprint::extent(std::size_t dimensions) const noexcept {
  auto bytes = run_;
  for (std::size_t i = 0; i < dimensions; ++i)
    bytes += (dimensions_[i].count - 1) * dimensions_[i].stride;
  return bytes;
}

std::uint64_t Footprint::runs() const noexcept {
  std::uint64_t runs = 1;
  for (const auto& dimension : dimensions_) runs *= dimension.count;
  return runs;
}

std::size_t Footprint::bytes() const noexcept { return run_ * runs(); }

bool Footprint::covers(const Footprint& other) const noexcept {
  if (other.empty()) return true;
  if (is_contiguous()) return begin() <= other.begin() && other.end() <= end();
  return *this == other;
}

std::optional<std::uintptr_t> Footprint::run_in(std::uintptr_t begin, std::uintptr_t end,
                                                int& steps) const {
  // The first run in the range of the part that the `rank` smallest dimensions make at `at`.
  const auto find = [&](const auto& self, std::uintptr_t at,
                        std::size_t rank) -> std::optional<std::uintptr_t> {
    if (at >= end || at + extent(rank) <= begin) return std::nullopt;
    if (rank == 0) return at;
    const auto [count, stride] = dimensions_[rank - 1];
    const auto inner = extent(rank - 1);
    std::uint64_t i = at + inner > begin ? 0 : (begin - at - inner) / stride + 1;
    for (; i < count && at + i * stride < end && --steps > 0; ++i) {
      if (const auto found = self(self, at + i * stride, rank - 1)) return found;
    }
    return std::nullopt;
  };
  return empty() ? std::nullopt : find(find, begin_, dimensions_.size());
}

std::optional<std::uintptr_t> Footprint::first_in(std::uintptr_t begin, std::uintptr_t end) const {
  int steps = kMostSteps;
  const auto run = run_in(begin, end, steps);
  return run ? std::optional(std::max(*run, begin)) : std::nullopt;
}

std::optional<std::uintptr_t> Footprint::end_of_run_at(std::uintptr_t byte) const {
  int steps = kMostSteps;
  const auto run = run_in(byte, byte + 1, steps);
  return run ? std::optional(*run + run_) : std::nullopt;
}

// Each element is at a multiple of the strides' common divisor from the beginning.
bool Footprint::may_share_bytes(const Footprint& other) const noexcept {
  if (empty() || other.empty() || begin() >= other.end() || other.begin() >= end()) return false;
  std::uint64_t divisor = 0;
  for (const auto* each : {this, &other}) {
    for (const auto& dimension : each->dimensions_) divisor = std::gcd(divisor, dimension.stride);
  }
  if (divisor == 0) return true;
  const auto& [low, high] =
      begin() <= other.begin() ? std::pair(this, &other) : std::pair(&other, this);
  const auto distance = (high->begin() - low->begin()) % divisor;
  return distance < low->run_ || divisor - distance < high->run_;
}

std::optional<std::uintptr_t> common_byte(const Footprint& a, const Footprint& b) {
  if (!a.may_share_bytes(b)) return std::nullopt;
  const auto& few = a.runs() <= b.runs() ? a : b;
  const auto& many = &few == &a ? b : a;
  int steps = kMostSteps;
  const auto find = [&](const auto& self, std::uintptr_t at,
                        std::size_t rank) -> std::optional<std::uintptr_t> {
    if (at >= many.end() || at + few.extent(rank) <= many.begin()) return std::nullopt;
    if (rank == 0) {
      const auto run = many.run_in(at, at + few.run_, steps);
      return run ? std::optional(std::max(*run, at)) : std::nullopt;
    }
    const auto& [count, stride] = few.dimensions_[rank - 1];
    for (std::uint64_t i = 0; i < count && --steps > 0; ++i) {
      if (const auto found = self(self, at + i * stride, rank - 1)) return found;
    }
    return std::nullopt;
  };
  return find(find, few.begin(), few.dimensions_.size());
}

}  // namespace openreg::memory
