#include "base/usable_cores.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "one_core.h"

namespace openreg {
namespace {

namespace fs = std::filesystem;

/// Hierarchies of control groups, in a folder of their own.
class QuotaTest : public ::testing::Test {
 protected:
  QuotaTest() {
    std::string pattern = ::testing::TempDir() + "groups_XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~QuotaTest() override { fs::remove_all(root_); }

  void write(const std::string& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  /// Of a process with this /proc/self/cgroup.
  std::optional<double> quota(const std::string& groups) const {
    write("of_process", groups);
    return processor_quota(root_ / "of_process", root_);
  }

 private:
  fs::path root_;
};

TEST_F(QuotaTest, IsReadFromVersion2) {
  write("pod/box/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota("0::/pod/box\n"), 1.5);
}

TEST_F(QuotaTest, IsReadFromVersion1) {
  write("cpu/box/cpu.cfs_quota_us", "50000\n");
  write("cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("5:memory:/other\n3:cpuacct,cpu:/box\n"), 0.5);
}

TEST_F(QuotaTest, IsTheSmallestOfAllGroupsAbove) {
  write("cpu.max", "400000 100000\n");
  write("pod/cpu.max", "100000 100000\n");
  write("pod/box/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota("0::/pod/box\n"), 1.0);
}

TEST_F(QuotaTest, IsFoundWhereThePathIsNotVisible) {
  write("cpu.max", "200000 100000\n");
  EXPECT_EQ(quota("0::/of/the/host\n"), 2.0);
}

TEST_F(QuotaTest, MayBeAbsent) {
  EXPECT_EQ(quota(""), std::nullopt);
  EXPECT_EQ(quota("no groups\n"), std::nullopt);
  write("box/cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/box\n"), std::nullopt);
  write("cpu/box/cpu.cfs_quota_us", "-1\n");
  write("cpu/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("1:cpu:/box\n"), std::nullopt);
  write("cpuset/box/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(quota("1:cpuset:/box\n"), std::nullopt);
}

TEST(UsableCores, FollowTheAffinity) {
  const auto refreshed = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(110));  // see refresh_usable_cores()
    refresh_usable_cores();
    return usable_cores();
  };
  const int before = refreshed();
  {
    const testing::OneCore confined;
    EXPECT_EQ(refreshed(), 1);
    std::thread([&] { EXPECT_EQ(refreshed(), 1); }).join();
  }
  EXPECT_EQ(refreshed(), before);
}

}  // namespace
}  // namespace openreg
