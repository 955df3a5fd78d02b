#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace openreg::ops {

/// What the tensors of a stand-in contain: zeros, or zeros except that integers are ones.
enum class Elements : bool { kZeros, kOnes };

/// A copy of a command whose tensors lie in host memory, to find out how a kernel treats such
/// arguments.
class StandIn {
 public:
  enum class Kind {
    kWhole,
    /// Sizes are small, but equal ones stay equal, 0 and 1 stay the same, and the order is
    /// preserved. Strides stay the same. A command with 8-bit floating-point tensors is not shrunk.
    kShrunk,
    /// As kWhole for tensors that are written; the others stay where they are, in device memory,
    /// and their elements must be available.
    kReading,
  };
  /// Throws std::bad_alloc.
  StandIn(std::span<const std::byte> command, Kind kind, Elements elements);

  std::span<const std::byte> command() const noexcept { return command_; }
  /// Bytes of the memory that was made for it.
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  void shrink();
  void give_memory();
  std::uint64_t make_memory(std::size_t bytes, std::size_t widest);
  void fill_with_ones();

  const Kind kind_;
  std::vector<std::byte> command_;
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<bool> made_;  // which storages lie in memory_
  std::size_t bytes_ = 0;
};

}  // namespace openreg::ops
