#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace openreg::testing {

/// Sets a soft limit of the process (`RLIMIT_*`) until the end of the scope.
class Limit {
 public:
  Limit(__rlimit_resource resource, rlim_t value) : resource_(resource) {
    EXPECT_EQ(getrlimit(resource, &before_), 0);
    const rlimit limit{.rlim_cur = value, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(resource, &limit), 0);
  }
  ~Limit() { EXPECT_EQ(setrlimit(resource_, &before_), 0); }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  __rlimit_resource resource_;
  rlimit before_{};
};

}  // namespace openreg::testing
