#include "base/host_memory.h"

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

TEST_F(HostMemoryTest, WhatIsLeftIsWhatTheMachineHasAvailable) {
  file("proc/meminfo",
       "MemTotal:  24000 kB\nMemFree:  100 kB\nMemAvailable:  2000 kB\nSwapFree: 9 kB");
  EXPECT_EQ(host_memory_left(root_), 2000 * 1024);
}

TEST_F(HostMemoryTest, AGroupWithLessLeftDecides) {
  file("proc/meminfo", "MemAvailable:  2000 kB");
  file("proc/self/cgroup", "0::/user/job");
  file("sys/fs/cgroup/user/job/memory.max", "max");
  file("sys/fs/cgroup/user/job/memory.current", "900000");
  file("sys/fs/cgroup/user/memory.max", "1000000");
  file("sys/fs/cgroup/user/memory.current", "950000");
  file("sys/fs/cgroup/user/memory.stat",
       "anon 500000\ninactive_file 20000\nactive_file 3000\nslab_reclaimable 400\nslab 90000");
  EXPECT_EQ(host_memory_left(root_), 1000000 - (950000 - 23400));
}

TEST_F(HostMemoryTest, AGroupOfVersionOneDoesTheSame) {
  file("proc/meminfo", "MemAvailable:  2000 kB");
  file("proc/self/cgroup", "4:memory:/job");
  file("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000");
  file("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "800000");
  file("sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 20000");
  file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  file("sys/fs/cgroup/memory/memory.usage_in_bytes", "900000");
  EXPECT_EQ(host_memory_left(root_), 220000);
}

TEST_F(HostMemoryTest, AGroupBeyondItsLimitHasNothingLeft) {
  file("proc/self/cgroup", "0::/job");
  file("sys/fs/cgroup/job/memory.max", "1000");
  file("sys/fs/cgroup/job/memory.current", "1500");
  EXPECT_EQ(host_memory_left(root_), 0);
}

TEST_F(HostMemoryTest, WithoutTheSystemsFilesItIsUnknown) {
  EXPECT_EQ(host_memory_left(root_), std::nullopt);
}

TEST(HostMemory, SomethingIsLeftOfThisMachine) {
  ASSERT_TRUE(host_memory_left().has_value());
  EXPECT_GT(*host_memory_left(), 0);
  EXPECT_LE(*host_memory_left(), host_memory());
}

TEST(HostMemory, DevicesShareFourFifthsOfIt) {
  const auto usable = host_memory() / 10 * 8;
  EXPECT_GT(usable, 0);
  EXPECT_EQ(default_device_memory(1), usable);
  EXPECT_EQ(default_device_memory(4), usable / 4);
}

}  // namespace
}  // namespace openreg
