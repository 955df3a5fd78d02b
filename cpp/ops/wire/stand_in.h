#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace openreg::ops {

/// What the tensors of a stand-in hold: zeros, or ones as the integers.
enum class Elements : bool { kZeros, kOnes };

/// A copy of a command whose tensors lie in host memory: to see what a kernel makes of such
/// arguments.
class StandIn {
 public:
  enum class Kind {
    kWhole,
    /// Sizes are small, but those that are equal, 1, or 0 stay so, and what is greater stays
    /// greater.
    kShrunk,
    /// As kWhole where tensors are written; the others stay where they are. Their elements must be
    /// there.
    kReading,
  };
  StandIn(std::span<const std::byte> command, Kind kind, Elements elements);

  std::span<const std::byte> command() const noexcept { return command_; }
  /// Of the memory made for it.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void shrink();
  void give_memory();
  void fill_with_ones();

  const Kind kind_;
  std::vector<std::byte> command_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
  std::vector<bool> made_;  // which storages lie there
  std::size_t bytes_ = 0;
};

}  // namespace openreg::ops
