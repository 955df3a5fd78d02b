#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace openreg {

/// Whether `is` is true for one of the words of a text, which have a space between them.
template <class Predicate>
bool any_word(std::string_view text, Predicate is) {
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    if (is(text.substr(0, end))) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

inline std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  any_word(text, [&](std::string_view word) {
    words.push_back(word);
    return false;
  });
  return words;
}

}  // namespace openreg
