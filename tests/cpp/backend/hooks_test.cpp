#include "backend/hooks.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "backend/allocator.h"
#include "backend/device.h"
#include "backend/generator.h"
#include "backend/guard.h"
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

TEST_F(HooksTest, PyTorchFindsTheHooks) {
  EXPECT_EQ(&at::globalContext().getAcceleratorHooksInterface(kDeviceType), &hooks);
}

TEST_F(HooksTest, TheDeviceIsBuiltAndAvailable) {
  EXPECT_TRUE(hooks.isBuilt());
  EXPECT_TRUE(hooks.isAvailable());
  EXPECT_EQ(hooks.deviceCount(), 2);
}

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

TEST_F(HooksTest, MalformedSettingsAreNoDevicesAndAnErrorAtTheFirstUse) {
  EXPECT_IN_FRESH_PROCESS({
    ::setenv("TORCH_OPENREG_DEVICES", "many", 1);
    bool ok = hooks.deviceCount() == 0 && !hooks.isAvailable() && device_guard().deviceCount() == 0;
    for (int use = 0; use < 4; ++use) {
      try {
        if (use == 0) hooks.init();
        if (use == 1) hooks.setCurrentDevice(0);
        if (use == 2) device_allocator().allocate(1);
        if (use == 3) default_generator(0);
        ok = false;
      } catch (const c10::Error& e) {
        ok = ok && std::string(e.what()).find("TORCH_OPENREG_DEVICES") != std::string::npos;
      }
    }
    exit_with(ok);
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

TEST_F(HooksTest, PinnedMemoryIsTheHostAllocators) {
  EXPECT_EQ(hooks.getPinnedMemoryAllocator(), &host_allocator());
  EXPECT_EQ(at::getHostAllocator(kDeviceType), &host_allocator());
  const auto data = hooks.getPinnedMemoryAllocator()->allocate(100);
  EXPECT_TRUE(hooks.isPinnedPtr(data.get()));
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

TEST_F(HooksTest, AForkedChildGetsAnErrorThatNamesSpawnAndMayDropWhatItInherited) {
  EXPECT_IN_FRESH_PROCESS({
    auto memory = device_allocator().allocate(100);
    auto pinned = host_allocator().allocate(100);
    const pid_t child = ::fork();
    if (child == 0) {
      memory.clear();
      pinned.clear();
      int refused = 0;
      for (int use = 0; use < 4; ++use) {
        try {
          if (use == 0) device_allocator().allocate(1);
          if (use == 1) device_guard().synchronizeDevice(0);
          if (use == 2) host_allocator().allocate(1);
          if (use == 3) hooks.init();
        } catch (const c10::Error& e) {
          refused += std::string(e.what()).find("spawn") != std::string::npos;
        }
      }
      exit_with(refused == 4);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    exit_with(status == 0);
  });
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
