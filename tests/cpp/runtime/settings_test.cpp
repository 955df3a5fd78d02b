#include "base/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/host_memory.h"

namespace openreg {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;

constexpr const char* kVariables[] = {
    "TORCH_OPENREG_DEVICES",         "TORCH_OPENREG_MEMORY",        "TORCH_OPENREG_ENGINES",
    "TORCH_OPENREG_LAUNCH_BLOCKING", "TORCH_OPENREG_FAULT_MESSAGE", "TORCH_OPENREG_CPU_FALLBACK",
    "TORCH_OPENREG_SCHEDULE",        "TORCH_OPENREG_FAULTS",        "TORCH_OPENREG_STICKY_ERRORS",
    "TORCH_OPENREG_COMPUTE",         "TORCH_OPENREG_DEBUG_MEMORY"};

class SettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* variable : kVariables) unsetenv(variable);
  }
  void TearDown() override { SetUp(); }

  static void set(const char* variable, const char* value) { setenv(variable, value, 1); }

  static std::string error_of(const char* variable, const char* value) {
    set(variable, value);
    std::string text = "no error";
    try {
      read_settings();
    } catch (const Error& error) {
      text = error.what();
    }
    unsetenv(variable);
    return text;
  }
};

TEST_F(SettingsTest, DefaultsHoldWhereNothingIsSet) {
  const Settings settings = read_settings();
  EXPECT_EQ(settings.devices, 2);
  EXPECT_FALSE(settings.memory.has_value());
  EXPECT_GE(settings.engines, 1);
  EXPECT_FALSE(settings.launch_blocking);
  EXPECT_TRUE(settings.fault_message);
  EXPECT_TRUE(settings.cpu_fallback);
  EXPECT_EQ(settings.schedule, Schedule{});
  EXPECT_TRUE(settings.faults.empty());
  EXPECT_FALSE(settings.sticky_errors);
}

TEST_F(SettingsTest, WithoutComputingSettingsThatNeedContentsAreRefused) {
  EXPECT_TRUE(read_settings().compute);
  set("TORCH_OPENREG_COMPUTE", "0");
  EXPECT_FALSE(read_settings().compute);
  const std::string refused = ", which needs the contents of device memory; unset one of the two";
  EXPECT_EQ(error_of("TORCH_OPENREG_DEBUG_MEMORY", "1"),
            "openreg: TORCH_OPENREG_COMPUTE=0 excludes TORCH_OPENREG_DEBUG_MEMORY=1" + refused);
  EXPECT_EQ(error_of("TORCH_OPENREG_FAULTS", "slow@copy:*=2ms; corrupt@launch:1"),
            "openreg: TORCH_OPENREG_COMPUTE=0 excludes faults of the kind corrupt in "
            "TORCH_OPENREG_FAULTS" +
                refused);
  EXPECT_EQ(error_of("TORCH_OPENREG_FAULTS", "slow@copy:*=2ms"), "no error");
}

TEST_F(SettingsTest, ReadsEveryVariable) {
  set("TORCH_OPENREG_DEVICES", "64");
  set("TORCH_OPENREG_MEMORY", "3GiB");
  set("TORCH_OPENREG_ENGINES", "1024");
  set("TORCH_OPENREG_LAUNCH_BLOCKING", "1");
  set("TORCH_OPENREG_FAULT_MESSAGE", "0");
  set("TORCH_OPENREG_CPU_FALLBACK", "0");
  set("TORCH_OPENREG_SCHEDULE", "random:7");
  const Settings settings = read_settings();
  EXPECT_EQ(settings.devices, 64);
  EXPECT_EQ(settings.memory, 3 * kGiB);
  EXPECT_EQ(settings.engines, 1024);
  EXPECT_TRUE(settings.launch_blocking);
  EXPECT_FALSE(settings.fault_message);
  EXPECT_FALSE(settings.cpu_fallback);
  EXPECT_EQ(settings.schedule.text(), "random:7");
}

TEST_F(SettingsTest, NamesWhatIsNoSettingAndTheNearestThatIs) {
  for (const char* variable : kVariables) set(variable, "1");
  set("TORCH_OPENREG_AUTOLOAD", "off");
  EXPECT_TRUE(unknown_settings().empty());
  const std::pair<const char*, const char*> cases[] = {
      {"TORCH_OPENREG_DEVICE", "TORCH_OPENREG_DEVICES"},
      {"TORCH_OPENREG_DEBUGMEMORY", "TORCH_OPENREG_DEBUG_MEMORY"},
      {"TORCH_OPENREG_", "TORCH_OPENREG_FITS"},
      {"TORCH_OPENREG_AUTO_LOAD", "TORCH_OPENREG_AUTOLOAD"}};
  for (const auto& [variable, nearest] : cases) {
    set(variable, "1");
    EXPECT_EQ(unknown_settings(), std::vector{std::string("openreg: ") + variable +
                                              " is not a setting; did you mean " + nearest + "?"});
    unsetenv(variable);
  }
  unsetenv("TORCH_OPENREG_AUTOLOAD");
}

TEST_F(SettingsTest, SizesTakeBinaryUnits) {
  const std::pair<const char*, std::size_t> cases[] = {{"1073741824", kGiB},
                                                       {"4096KiB", 4 * kMiB},
                                                       {"512MiB", 512 * kMiB},
                                                       {"8GiB", 8 * kGiB},
                                                       {"16TiB", 16384 * kGiB}};
  for (const auto& [text, bytes] : cases) {
    set("TORCH_OPENREG_MEMORY", text);
    EXPECT_EQ(read_settings().memory, bytes) << text;
  }
}

TEST_F(SettingsTest, APercentageIsOfTheDefaultForThatManyDevices) {
  set("TORCH_OPENREG_DEVICES", "4");
  set("TORCH_OPENREG_MEMORY", "50%");
  EXPECT_EQ(read_settings().memory, default_device_memory(4) / 100 * 50);
}

TEST_F(SettingsTest, AMalformedFaultSaysWhatIsExpected) {
  set("TORCH_OPENREG_FAULTS", "oom@allocation:100; slow@copy:*=2ms");
  EXPECT_EQ(read_settings().faults.size(), 2U);
  EXPECT_EQ(error_of("TORCH_OPENREG_FAULTS", "oom@launch:1"),
            "openreg: TORCH_OPENREG_FAULTS is malformed: invalid fault: no such place for "
            "\"oom\" (got \"launch\", expected allocation or pin)");
}

TEST_F(SettingsTest, AMalformedScheduleNamesTheKinds) {
  for (const char* value : {"", "random", "random:x", "LATEST"}) {
    EXPECT_EQ(error_of("TORCH_OPENREG_SCHEDULE", value),
              "openreg: TORCH_OPENREG_SCHEDULE is malformed (got \"" + std::string(value) +
                  "\", expected \"earliest\", \"latest\", or \"random:SEED\" with a number below "
                  "2^64)");
  }
}

TEST_F(SettingsTest, AMalformedCountNamesVariableValueAndRange) {
  EXPECT_EQ(error_of("TORCH_OPENREG_DEVICES", "abc"),
            "openreg: TORCH_OPENREG_DEVICES is malformed (got \"abc\", expected an integer from 1 "
            "to 64)");
  for (const char* value :
       {"", "0", "65", "-1", "+2", " 2", "2 ", "2.0", "0x2", "99999999999999999999"}) {
    EXPECT_EQ(error_of("TORCH_OPENREG_DEVICES", value),
              "openreg: TORCH_OPENREG_DEVICES is malformed (got \"" + std::string(value) +
                  "\", expected an integer from 1 to 64)");
  }
  EXPECT_EQ(error_of("TORCH_OPENREG_ENGINES", "1025"),
            "openreg: TORCH_OPENREG_ENGINES is malformed (got \"1025\", expected an integer from 1 "
            "to 1024)");
}

TEST_F(SettingsTest, AMalformedSwitchNamesVariableValueAndRange) {
  for (const char* variable : {"TORCH_OPENREG_LAUNCH_BLOCKING", "TORCH_OPENREG_FAULT_MESSAGE"}) {
    for (const char* value : {"", "true", "2", "01"}) {
      EXPECT_EQ(error_of(variable, value), "openreg: " + std::string(variable) +
                                               " is malformed (got \"" + value +
                                               "\", expected 0 or 1)");
    }
  }
}

TEST_F(SettingsTest, AMalformedSizeNamesVariableValueAndForms) {
  for (const char* value :
       {"", "8GB", "8 GiB", "GiB", "-8GiB", "1.5GiB", "8gib", "1MiB", "0", "17TiB", "0%", "101%",
        "%", "50 %", "18446744073709551615GiB", "99999999999999999999"}) {
    EXPECT_EQ(error_of("TORCH_OPENREG_MEMORY", value),
              "openreg: TORCH_OPENREG_MEMORY is malformed (got \"" + std::string(value) +
                  "\", expected a size from 2MiB to 16TiB, such as \"8GiB\", \"512MiB\" or "
                  "\"1073741824\", or a percentage "
                  "of the default from \"1%\" to \"100%\")");
  }
}

// Settings are cached for the process, so each of these runs in a separate one.
class SettingsDeathTest : public SettingsTest {
 protected:
  void SetUp() override {
    SettingsTest::SetUp();
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(SettingsDeathTest, SettingsAreReadOnce) {
  EXPECT_EXIT(
      {
        set("TORCH_OPENREG_DEVICES", "3");
        const int before = settings().devices;
        set("TORCH_OPENREG_DEVICES", "5");
        std::exit(before == 3 && settings().devices == 3 && device_count() == 3 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(SettingsDeathTest, MalformedSettingsThrowAtEveryCallAndCountNoDevices) {
  EXPECT_EXIT(
      {
        set("TORCH_OPENREG_DEVICES", "none");
        int errors = 0;
        for (int call = 0; call < 2; ++call) {
          try {
            settings();
          } catch (const Error&) {
            ++errors;
          }
        }
        std::exit(errors == 2 && device_count() == 0 && device_count() == 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "^openreg: TORCH_OPENREG_DEVICES is malformed \\(got \"none\"[^\n]*; there are no "
      "devices\n$");
}

}  // namespace
}  // namespace openreg
