#include "runtime/address_space/host_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace openreg {
namespace {

namespace fs = std::filesystem;

// A separate file system, with the files that the kernel would provide.
class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "openreg-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void file(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }

  fs::path root_;
};

TEST_F(HostMemoryTest, WithoutControlGroupsThereIsNoLimit) {
  EXPECT_EQ(cgroup_memory_limit(root_), std::nullopt);
}

TEST_F(HostMemoryTest, VersionTwoGivesTheGroupsLimit) {
  file("proc/self/cgroup", "0::/user/job");
  file("sys/fs/cgroup/user/job/memory.max", "1000000");
  EXPECT_EQ(cgroup_memory_limit(root_), 1000000);
}

TEST_F(HostMemoryTest, AnOuterGroupsLowerLimitHolds) {
  file("proc/self/cgroup", "0::/user/job");
  file("sys/fs/cgroup/user/job/memory.max", "max");
  file("sys/fs/cgroup/user/memory.max", "500");
  file("sys/fs/cgroup/memory.max", "700");
  EXPECT_EQ(cgroup_memory_limit(root_), 500);
}

TEST_F(HostMemoryTest, AnUnlimitedGroupHasNoLimit) {
  file("proc/self/cgroup", "0::/job");
  file("sys/fs/cgroup/job/memory.max", "max");
  EXPECT_EQ(cgroup_memory_limit(root_), std::nullopt);
}

TEST_F(HostMemoryTest, InAContainerTheMountIsTheGroup) {
  file("proc/self/cgroup", "0::/docker/0123456789ab");
  file("sys/fs/cgroup/memory.max", "123456");
  EXPECT_EQ(cgroup_memory_limit(root_), 123456);
}

TEST_F(HostMemoryTest, VersionOneGivesTheMemoryControllersLimit) {
  file("proc/self/cgroup", "8:pids:/job\n4:cpu,memory:/job\n1:name=systemd:/job");
  file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000");
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(cgroup_memory_limit(root_), 2000000);
}

TEST_F(HostMemoryTest, MalformedLinesAreNoLimit) {
  file("proc/self/cgroup", "nonsense\n:");
  EXPECT_EQ(cgroup_memory_limit(root_), std::nullopt);
}

TEST(HostMemory, DevicesShareFourFifthsOfIt) {
  const auto usable = host_memory() / 10 * 8;
  EXPECT_GT(usable, 0);
  EXPECT_EQ(default_device_memory(1), usable);
  EXPECT_EQ(default_device_memory(4), usable / 4);
}

}  // namespace
}  // namespace openreg
