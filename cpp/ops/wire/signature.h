#pragma once

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace openreg::ops {

/// Words that are compared by their hash, and then one by one. `whom` is the kernel or the operator
/// that they describe.
struct SignatureView {
  const void* whom = nullptr;
  std::span<const std::uint64_t> words;
  std::span<const std::uint64_t> integers;
  std::uint64_t hash = 0;
};

inline std::uint64_t mix(std::uint64_t hash, std::uint64_t word) noexcept {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 32);
}

/// Makes a view, including its hash.
inline SignatureView make_signature(const void* whom, std::span<const std::uint64_t> words,
                                    std::span<const std::uint64_t> integers = {}) noexcept {
  std::uint64_t hash = mix(0xCBF29CE484222325, reinterpret_cast<std::uintptr_t>(whom));
  for (const auto word : words) hash = mix(hash, word);
  for (const auto word : integers) hash = mix(hash, word);
  return {whom, words, integers, hash};
}

/// A SignatureView with its own copy of the words, to keep.
class Signature {
 public:
  explicit Signature(const SignatureView& view)
      : whom_(view.whom), hash_(view.hash), count_(view.words.size()) {
    words_.reserve(view.words.size() + view.integers.size());
    words_.insert(words_.end(), view.words.begin(), view.words.end());
    words_.insert(words_.end(), view.integers.begin(), view.integers.end());
  }

  std::uint64_t hash() const noexcept { return hash_; }
  bool operator==(const SignatureView& other) const noexcept {
    return hash_ == other.hash && whom_ == other.whom && count_ == other.words.size() &&
           words_.size() == count_ + other.integers.size() &&
           std::equal(other.words.begin(), other.words.end(), words_.begin()) &&
           std::equal(other.integers.begin(), other.integers.end(), words_.begin() + count_);
  }

 private:
  const void* whom_;
  std::uint64_t hash_;
  std::size_t count_;
  std::vector<std::uint64_t> words_;
};

}  // namespace openreg::ops
