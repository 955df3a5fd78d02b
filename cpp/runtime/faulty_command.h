#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/command.h"

namespace openreg {

/// What goes wrong with one command while it runs.
struct CommandFault {
  /// A bit that has the wrong value after the command.
  struct BitFlip {
    std::byte* address;  // that this process can access
    std::byte bit;
  };

  bool empty() const noexcept {
    return delay.count() == 0 && error.empty() && flips.empty() && !crashes;
  }
  /// Waits, throws InjectedError if there is an error, else calls `run` and flips the bits.
  void apply_around(const std::function<void()>& run) const;
  /// Like apply_around(), with a command as `run`, inside of another command.
  void run(const Kernel& kernel, std::span<const std::byte> arguments) const;

  std::chrono::nanoseconds delay{};
  std::string error{};
  std::vector<BitFlip> flips{};
  bool crashes = false;  // the executor, in the command
};

/// Faults of the nodes of a graph, by the node's number.
using NodeFaults = std::map<std::uint32_t, CommandFault>;

class Stream;

/// Enqueues a command that takes this time. Throws as Stream::enqueue() does.
void enqueue_delay(Stream& stream, std::chrono::nanoseconds delay);

/// Calls `enqueue` with a command that runs the given one with the fault. In errors and traces it
/// has the name of the given one.
void with_faulty_command(
    const Kernel& kernel, std::span<const std::byte> arguments, const CommandFault& fault,
    const std::function<void(const Kernel&, std::span<const std::byte>)>& enqueue);

}  // namespace openreg
