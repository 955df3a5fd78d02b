#include "base/quantity.h"

#include <array>
#include <cstdio>

namespace openreg {

namespace {

constexpr std::uint64_t kKibibyte = 1024;
constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

}  // namespace

std::string format_size(std::uint64_t bytes) {
  if (bytes < kKibibyte) return format_count(bytes, "byte");
  double value = static_cast<double>(bytes) / kKibibyte;
  std::size_t unit = 0;
  // A value that would round to 1024.00 is shown in the next unit.
  while (value >= 1023.995 && unit + 1 < kUnits.size()) {
    value /= kKibibyte;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s", value, kUnits[unit]);
  return text.data();
}

std::string format_count(std::uint64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

}  // namespace openreg
