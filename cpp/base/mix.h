#pragma once

#include <cstdint>

namespace openreg {

/// Mixes the bits of a counter, so that consecutive ones give independent numbers: SplitMix64
/// (Steele, Lea and Flood, 2014).
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

}  // namespace openreg
