#pragma once

#include <c10/util/flat_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace openreg::ops {

/// Finds the entries of a growing list by their identity. The few of most calls are compared one
/// after another; from kMostCompared on a hash table finds them, so a command of thousands of
/// tensors costs as much for each of them. `Entries`: a random-access container of entries with a
/// member `identity`, a pointer that does not change.
class IdentityIndex {
 public:
  template <class Entries>
  std::optional<std::size_t> find(const Entries& entries, const void* identity) {
    if (entries.size() > kMostCompared) return find_in_table(entries, identity);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].identity == identity) return i;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kMostCompared = 24;
  using Table = ska::flat_hash_map<const void*, std::size_t>;

  template <class Entries>
  std::optional<std::size_t> find_in_table(const Entries& entries, const void* identity) {
    if (!table_) table_ = std::make_unique<Table>();
    for (; known_ < entries.size(); ++known_) table_->emplace(entries[known_].identity, known_);
    const auto found = table_->find(identity);
    return found == table_->end() ? std::nullopt : std::optional(found->second);
  }

  std::unique_ptr<Table> table_;
  std::size_t known_ = 0;  // entries in the table
};

}  // namespace openreg::ops
