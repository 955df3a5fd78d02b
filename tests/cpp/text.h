#pragma once

#include <string_view>

namespace openreg::testing {

// For EXPECT_PRED2, which prints both texts if the expectation fails.

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
inline bool begins_with(std::string_view text, std::string_view beginning) {
  return text.starts_with(beginning);
}

}  // namespace openreg::testing
