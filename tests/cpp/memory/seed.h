#pragma once

#include <cstdlib>
#include <random>
#include <string>

namespace openreg::memory::testing {

/// A different one each time; OPENREG_TEST_SEED repeats the one that a failure has printed.
inline unsigned seed() {
  const char* const given = std::getenv("OPENREG_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device{}();
}

}  // namespace openreg::memory::testing
