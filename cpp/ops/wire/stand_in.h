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
  /// `shrunk`: sizes are small, but those that are equal, 1, or 0 stay so, and what is greater
  /// stays greater.
  StandIn(std::span<const std::byte> command, bool shrunk, Elements elements);

  std::span<const std::byte> command() const noexcept { return command_; }
  /// Of the memory made for it.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void shrink();
  void give_memory(bool shrunk);
  void fill_with_ones();

  std::vector<std::byte> command_;
  std::vector<std::unique_ptr<void, void (*)(void*)>> memory_;
  std::size_t bytes_ = 0;
};

}  // namespace openreg::ops
