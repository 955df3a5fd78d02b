#include "backend/hooks.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/generator.h"
#include "backend/host_allocator.h"
#include "runtime/process.h"
#include "slot_hooks.h"

namespace openreg::backend {
namespace {

class HooksTest : public ::testing::Test {
 protected:
  const SlotHooks& hooks = accelerator_hooks();
  void TearDown() override { set_device(0); }
};

// Ends a separate process, with status 0 if `condition` holds there.
void exit_with(bool condition) { ::_exit(condition ? 0 : 1); }

#define EXPECT_IN_FRESH_PROCESS(...) EXPECT_EXIT(__VA_ARGS__, ::testing::ExitedWithCode(0), "")

TEST_F(HooksTest, QueriesDoNotInitialiseTheDevice) {
  EXPECT_IN_FRESH_PROCESS({
    hooks.isAvailable();
    hooks.deviceCount();
    hooks.init();
    hooks.exchangeDevice(1);
    default_generator(0);
    device_allocator().getDeviceStats(0);
    device_allocator().emptyCache();
    exit_with(!is_initialized() && !hooks.hasPrimaryContext(0) &&
              !device_allocator().initialized());
  });
}

TEST_F(HooksTest, TheFirstTensorInitialisesTheDeviceEvenAnEmptyOne) {
  EXPECT_IN_FRESH_PROCESS({
    device_allocator().allocate(0);
    exit_with(hooks.hasPrimaryContext(0) && hooks.hasPrimaryContext(1) &&
              !hooks.hasPrimaryContext(2) && !hooks.hasPrimaryContext(-1) &&
              device_allocator().initialized());
  });
}

TEST_F(HooksTest, MaybeExchangeLeavesTheDeviceWhereThereIsNone) {
  hooks.setCurrentDevice(1);
  EXPECT_EQ(hooks.maybeExchangeDevice(-1), 1);
  EXPECT_EQ(hooks.maybeExchangeDevice(7), 1);
  EXPECT_EQ(hooks.getCurrentDevice(), 1);
  EXPECT_EQ(hooks.maybeExchangeDevice(0), 1);
  EXPECT_EQ(hooks.getCurrentDevice(), 0);
}

TEST_F(HooksTest, ADevicePointerNamesItsDevice) {
  set_device(1);
  const auto data = device_allocator().allocate(1000);
  auto* inside = static_cast<char*>(data.get()) + 999;
  EXPECT_EQ(hooks.getDeviceFromPtr(data.get()), c10::Device(kDeviceType, 1));
  EXPECT_EQ(hooks.getDeviceFromPtr(inside), c10::Device(kDeviceType, 1));
  int on_the_host = 0;
  EXPECT_THROW(hooks.getDeviceFromPtr(&on_the_host), c10::Error);
}

TEST_F(HooksTest, GeneratorsAreOfTheDeviceAskedFor) {
  EXPECT_EQ(hooks.getDefaultGenerator(1).device(), c10::Device(kDeviceType, 1));
  EXPECT_EQ(hooks.getDefaultGenerator(1), default_generator(1));
  set_device(1);
  EXPECT_EQ(hooks.getDefaultGenerator(-1), default_generator(1));
  EXPECT_EQ(hooks.getNewGenerator(-1).device(), c10::Device(kDeviceType, 1));
  EXPECT_NE(hooks.getNewGenerator(0), hooks.getNewGenerator(0));
  EXPECT_THROW((void)hooks.getDefaultGenerator(2), c10::Error);
}

TEST_F(HooksTest, AfterShutdownMemoryMayBeDroppedAndNothingElse) {
  EXPECT_IN_FRESH_PROCESS({
    auto memory = device_allocator().allocate(100);
    auto pinned = host_allocator().allocate(100);
    shutdown();
    memory.clear();
    pinned.clear();
    bool refused = false;
    try {
      device_allocator().allocate(1);
    } catch (const c10::Error&) {
      refused = true;
    }
    exit_with(refused);
  });
}

}  // namespace
}  // namespace openreg::backend
