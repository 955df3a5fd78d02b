#pragma once

#include <gtest/gtest.h>

#include "runtime/current_schedule.h"

/// At the beginning of a test that measures what engines do beside hosts, or expects that a query
/// finds work unfinished: skips it in an adversarial schedule (base/schedule.h), where engines
/// hold back and a query runs what it asks about. The Python tests have a mark of this name.
// A macro, because GTEST_SKIP returns from the test.
#define OPENREG_NEEDS_ENGINES(reason)               \
  if (openreg::schedule() == openreg::Schedule{}) { \
  } else                                            \
    GTEST_SKIP() << "needs engines: " reason

/// At the beginning of a test that expects commands to run in a wait, and only those that the wait
/// needs: skips it in a random schedule, where submissions and waits run others, too.
#define OPENREG_NOT_AT_RANDOM(reason)                                 \
  if (openreg::schedule().kind != openreg::Schedule::Kind::kRandom) { \
  } else                                                              \
    GTEST_SKIP() << "not in a random schedule: " reason
