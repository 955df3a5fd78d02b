#include "ops/wire/identity_index.h"

#include <gtest/gtest.h>

#include <vector>

namespace openreg::ops {
namespace {

struct Entry {
  const void* identity;
};

TEST(IdentityIndex, FindsFewAndManyEntriesAsTheListGrows) {
  const std::vector<char> objects(5000);
  std::vector<Entry> entries;
  IdentityIndex index;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    EXPECT_FALSE(index.find(entries, &objects[i]));
    entries.push_back({&objects[i]});
    EXPECT_EQ(index.find(entries, &objects[i]), i);
    EXPECT_EQ(index.find(entries, &objects[i / 2]), i / 2);
  }
}

TEST(IdentityIndex, FindsTheFirstOfEqualEntries) {
  const char object = 0;
  const std::vector<char> others(100);
  std::vector<Entry> entries{{&object}};
  for (const char& other : others) entries.push_back({&other});
  entries.push_back({&object});
  IdentityIndex index;
  EXPECT_EQ(index.find(entries, &object), 0);
}

}  // namespace
}  // namespace openreg::ops
