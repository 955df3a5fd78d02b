#include <c10/core/DeviceType.h>
#include <gtest/gtest.h>

#include <cstdlib>

// Tests of the backend rely on two small devices, and on the name that Python would give them.
// Tests that need a fresh process (first use, shutdown, malformed settings) run their body in one:
// the "threadsafe" style starts the program again.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ::setenv("TORCH_OPENREG_DEVICES", "2", /*overwrite=*/1);
  ::setenv("TORCH_OPENREG_MEMORY", "64MiB", 1);
  ::setenv("TORCH_OPENREG_ENGINES", "1", 1);
  ::unsetenv("TORCH_OPENREG_LAUNCH_BLOCKING");
  c10::register_privateuse1_backend("openreg");
  return RUN_ALL_TESTS();
}
