#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace openreg::testing {

/// The message of what `function` throws; "nothing" if it does not throw.
template <class F>
std::string error_of(F&& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

// For EXPECT_PRED2, which prints both texts if the expectation fails.

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}
inline bool begins_with(std::string_view text, std::string_view beginning) {
  return text.starts_with(beginning);
}

}  // namespace openreg::testing
