// Random numbers: a seed, and how many numbers have been drawn since it was set. PyTorch seeds it
// by torch.manual_seed; checkpoints, fork_rng and DTensor save and restore its state.
#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Utils.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <memory>

#include "device.h"
#include "driver/memory.h"

namespace torch_acme {

namespace {

// DTensor expects this layout as bytes: 8 of the seed, then 8 of the offset.
struct State {
  std::uint64_t seed = c10::default_rng_seed_val;
  std::uint64_t offset = 0;
};

class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device, std::shared_ptr<State> state = nullptr)
      : GeneratorImpl({kAcme, device}, kKeys),
        state_(state ? std::move(state) : std::make_shared<State>()) {}

  static c10::DeviceType device_type() { return kAcme; }  // for get_generator_or_default

  std::uint64_t current_seed() const override { return state_->seed; }
  void set_current_seed(std::uint64_t seed) override { *state_ = {seed, 0}; }
  std::uint64_t get_offset() const override { return state_->offset; }
  void set_offset(std::uint64_t offset) override { state_->offset = offset; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_->seed;
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto bytes = at::empty({sizeof(State)}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), state_.get(), sizeof(State));
    return bytes.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& bytes) override {
    at::detail::check_rng_state(bytes);
    TORCH_CHECK(bytes.numel() == sizeof(State), "acme: the random state has a wrong size (got ",
                bytes.numel(), " bytes, expected ", sizeof(State), ")");
    std::memcpy(state_.get(), bytes.data(), sizeof(State));
  }

  // Generators that share one state, for graphs.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<Generator>(device().index(), state_);
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    state_ = dynamic_cast<const Generator&>(*other).state_;
  }

  // A kernel of a real device would get seed and offset, and compute its numbers from both. The CPU
  // computes ours. Its generator takes 32 bits of a seed, so use bits of the product that depend on
  // all of ours. DTensor expects offsets in multiples of 4.
  at::Generator take_cpu_generator() {
    const std::lock_guard lock(mutex_);
    const auto mixed = (state_->seed ^ (state_->offset * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
    state_->offset += 4;
    return at::detail::createCPUGenerator(mixed >> 32);
  }

  Generator* clone_impl() const override {
    return new Generator(device().index(), std::make_shared<State>(*state_));
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto& all = *[] {
    auto* const made = new std::array<at::Generator, driver::kDevices>;
    for (int i = 0; i < driver::kDevices; ++i)
      (*made)[i] = new_generator(static_cast<c10::DeviceIndex>(i));
    return made;
  }();
  return all[device];
}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<Generator>(device);
}

at::Generator take_cpu_generator(const std::optional<at::Generator>& given,
                                 c10::DeviceIndex device) {
  return at::get_generator_or_default<Generator>(given, default_generator(device))
      ->take_cpu_generator();
}

}  // namespace torch_acme
