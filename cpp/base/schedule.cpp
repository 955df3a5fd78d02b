#include "base/schedule.h"

#include <charconv>
#include <system_error>

namespace openreg {

namespace {
constexpr std::string_view kRandomPrefix = "random:";
}

std::optional<Schedule> Schedule::parse(std::string_view text) noexcept {
  if (text == "earliest" || text == "default") return Schedule{};
  if (text == "latest") return Schedule{.kind = Kind::kLatest};
  if (!text.starts_with(kRandomPrefix)) return std::nullopt;
  text.remove_prefix(kRandomPrefix.size());
  Schedule result{.kind = Kind::kRandom};
  const auto* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, result.seed);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return result;
}

std::string Schedule::text() const {
  switch (kind) {
    case Kind::kEarliest:
      return "earliest";
    case Kind::kLatest:
      return "latest";
    case Kind::kRandom:
      break;
  }
  return std::string(kRandomPrefix) + std::to_string(seed);
}

}  // namespace openreg
