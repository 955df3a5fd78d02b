#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace openreg {

/// When commands run, within what streams and events permit. A correct program computes the same in
/// every schedule; the adversarial ones show what a program gets wrong (docs/architecture.md).
struct Schedule {
  enum class Kind : std::uint8_t {
    kEarliest,  ///< commands run as early as engines can
    kLatest,    ///< commands run as late as hosts permit, and only what a host waits or asks for
    kRandom,    ///< time and order depend on the seed and the submissions only
  };

  /// Parses "earliest" (also "default"), "latest", or "random:SEED" with a number of 64 bits;
  /// nullopt for other texts.
  static std::optional<Schedule> parse(std::string_view text) noexcept;
  /// What parse() accepts, for errors.
  static constexpr const char* kExpected =
      "\"earliest\", \"latest\", or \"random:SEED\" with a number below 2^64";

  /// The schedule as text that parse() accepts.
  std::string text() const;
  bool operator==(const Schedule&) const = default;

  Kind kind = Kind::kEarliest;
  std::uint64_t seed = 0;  // of kRandom
};

}  // namespace openreg
