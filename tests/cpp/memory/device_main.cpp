#include <gtest/gtest.h>

#include <cstdlib>

// Two small devices, so that memory runs out soon.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  ::setenv("TORCH_OPENREG_DEVICES", "2", /*overwrite=*/1);
  ::setenv("TORCH_OPENREG_MEMORY", "64MiB", 1);
  ::unsetenv("TORCH_OPENREG_LAUNCH_BLOCKING");
  return RUN_ALL_TESTS();
}
