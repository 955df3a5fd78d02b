#include "backend/generator.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "backend/device.h"
#include "slot.h"

namespace openreg::backend {
namespace {

TEST(GeneratorTest, ANewGeneratorHasPyTorchsDefaultSeed) {
  auto generator = new_generator(1);
  EXPECT_EQ(generator.device(), c10::Device(kDeviceType, 1));
  EXPECT_EQ(generator.current_seed(), c10::default_rng_seed_val);
  EXPECT_EQ(generator.get_offset(), 0U);
  EXPECT_TRUE(generator.key_set().has(kDispatchKey));
}

TEST(GeneratorTest, NumbersAreTakenInRoundsOfFour) {
  auto generator = new_generator(0);
  generator.set_current_seed(42);
  const auto first = reserve_philox(generator, 0, 1);
  const auto second = reserve_philox(generator, 0, 5);
  EXPECT_EQ(first.seed, 42U);
  EXPECT_EQ(first.offset, 0U);
  EXPECT_EQ(second.offset, 4U);
  EXPECT_EQ(generator.get_offset(), 12U);
}

TEST(GeneratorTest, WithoutAGeneratorTheDevicesDefaultOneIsUsed) {
  auto generator = default_generator(1);
  generator.set_current_seed(7);
  EXPECT_EQ(reserve_philox(std::nullopt, 1, 4).seed, 7U);
  EXPECT_EQ(generator.get_offset(), 4U);
}

TEST(GeneratorTest, NoNumberIsTakenTwiceByThreads) {
  auto generator = new_generator(0);
  constexpr int kThreads = 4;
  constexpr int kTakes = 1000;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kTakes; ++j) reserve_philox(generator, 0, 4);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(generator.get_offset(), 4U * kThreads * kTakes);
}

TEST(GeneratorTest, AGeneratorOfAnotherDeviceIsRefused) {
  EXPECT_THROW(reserve_philox(new_generator(1), 0, 4), c10::Error);
  struct CpuLike final : c10::GeneratorImpl {
    CpuLike() : GeneratorImpl(c10::Device(c10::kCPU), c10::DispatchKeySet(c10::DispatchKey::CPU)) {}
    void set_current_seed(std::uint64_t) override {}
    void set_offset(std::uint64_t) override {}
    std::uint64_t get_offset() const override { return 0; }
    std::uint64_t current_seed() const override { return 0; }
    std::uint64_t seed() override { return 0; }
    void set_state(const c10::TensorImpl&) override {}
    c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return {}; }
    CpuLike* clone_impl() const override { return new CpuLike; }
  };
  try {
    reserve_philox(at::make_generator<CpuLike>(), 0, 4);
    FAIL() << "took a CPU generator";
  } catch (const c10::Error& e) {
    EXPECT_STREQ(e.what_without_backtrace(),
                 "Expected a 'openreg' device type for generator but found 'cpu'");
  }
}

TEST(GeneratorTest, RandomSeedsDifferAndFitADouble) {
  auto generator = new_generator(0);
  const auto first = generator.seed();
  EXPECT_EQ(generator.current_seed(), first);
  EXPECT_NE(generator.seed(), first);
  EXPECT_LT(first, std::uint64_t{1} << 53);
}

}  // namespace
}  // namespace openreg::backend
