#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "executor/doorbell.h"

namespace openreg::executor {

/// The way of one request at a time to a thread of the executor, and of its answer. The side whose
/// turn it is owns all but the doorbells. A request that is longer than `data` travels in pieces,
/// each of which is answered.
struct alignas(64) Channel {
  static constexpr std::size_t kBytes = std::size_t{64} << 10;

  Doorbell requests;
  Doorbell answers;
  std::uint32_t status = 0;                // of the answer
  std::uint32_t bytes = 0;                 // in `data`
  std::uint32_t whole = 0;                 // of the request
  std::atomic<std::uint32_t> progress{0};  // within the request, as the layer above counts it
  std::uint32_t mappings = 0;              // that must be in effect before the request is handled
  alignas(64) std::array<std::byte, kBytes> data;
};

/// What the program and one executor share besides the device's memory: a file without a name.
struct SharedBlock {
  static constexpr std::size_t kChannels = 64;
  static constexpr std::int32_t kNone = -1;

  Doorbell mappings;  // messages about memory that are in effect in the executor
  std::atomic<std::int32_t> crashed{kNone};  // the channel whose request ended the executor
  std::array<char, 512> reason{};            // why the executor ended by itself; empty: it did not
  std::array<Channel, kChannels> channels;
};

}  // namespace openreg::executor
