#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace openreg {

/// The kinds of faults.
enum class FaultKind : std::uint8_t {
  kOutOfMemory,  ///< "oom": an allocation fails
  kError,        ///< "error": a command, a collective, a receipt or a compilation fails
  kCorrupt,      ///< "corrupt": one bit of a result is wrong
  kSlow,         ///< "slow": a command or a collective begins later
  kHang,         ///< "hang": a command or a collective does not begin
  kLost,         ///< "lost": the device is lost
  kExit,         ///< "exit": the process ends
  kCrash,        ///< "crash": the device's executor ends in a kernel
};

/// The kinds of events that faults count.
enum class FaultPoint : std::uint8_t {
  kAllocation,  ///< an allocation of device memory
  kLaunch,      ///< a launch of a command that is not a copy, or of a graph's node
  kCopy,        ///< a copy by a command, or by the host
  kCollective,  ///< a collective, a send or a receive
  kPin,         ///< an allocation of pinned memory
  kIpc,         ///< memory of another process is opened
  kCompile,     ///< a program is compiled
  kOperator,    ///< launches and copies of the operator FaultSpec::op
};

/// An injected fault: what goes wrong, and when. docs/faults.md defines the grammar.
struct FaultSpec {
  /// Parses a specification: "oom@allocation:100", "slow@copy:*=2ms", "exit@collective:7,rank=1".
  /// Throws Error with what is wrong and what is expected.
  static FaultSpec parse(std::string_view text);
  /// Like parse(), but the options are separate, and may contain any character.
  static FaultSpec parse(std::string_view head, const std::vector<std::string>& options);
  /// Parses several specifications, separated by semicolons. Throws as parse() does.
  static std::vector<FaultSpec> parse_list(std::string_view text);

  std::string text;  ///< the specification as it was written
  FaultKind kind = FaultKind::kError;
  FaultPoint point = FaultPoint::kLaunch;
  std::string op{};  ///< the operator of kOperator; without the name of an overload: all its forms
  std::uint64_t first = 1;               ///< the first one that can fail, counted from 1
  std::optional<std::uint64_t> times{};  ///< how many fail at most; nullopt: no limit
  std::optional<int> device{};           ///< only those of this device are counted
  std::optional<int> rank{};     ///< only on this rank: the global one, or RANK of the process
  std::optional<int> restart{};  ///< only in this run of a restarted process; 0: the first
  std::string match{};           ///< only those with a name that matches; "*" and "?"
  double probability = 1;
  std::optional<std::uint64_t> seed{};
  std::chrono::nanoseconds delay{};  ///< the delay of kSlow
};

/// The name of a point in a specification, such as "allocation"; for kOperator "call".
const char* name_of(FaultPoint point) noexcept;

}  // namespace openreg
