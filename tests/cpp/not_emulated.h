#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

/// At the beginning of a test, or of a fixture's SetUp(), that an emulator cannot run: skips it
/// under cmake/toolchains/run-aarch64.
///
/// Note [What qemu-user does not emulate]: it starts no second program; keeps a record for
/// each page of addresses that are reserved, which takes minutes; ignores RLIMIT_AS and
/// MADV_DONTFORK; ends system calls for a SIGSEGV that was sent, also with SA_RESTART; tells a
/// signal handler nothing about what a faulting instruction does; and prints a line of its own when
/// a signal kills the program, while some tests expect exactly our output.
#define OPENREG_NOT_EMULATED(reason)                        \
  if (std::getenv("OPENREG_EMULATED_PROGRAM") == nullptr) { \
  } else                                                    \
    GTEST_SKIP() << "not emulated: " reason
