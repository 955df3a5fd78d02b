#include "backend/generator.h"

#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstring>
#include <memory>
#include <mutex>

#include "backend/device_type.h"
#include "backend/thread_current.h"

namespace openreg::backend {

namespace {

// A round of Philox 4x32-10 gives four numbers, and kernels take whole rounds.
constexpr std::uint64_t kNumbersPerRound = 4;

struct SharedState {
  std::mutex mutex;
  PhiloxState philox{c10::default_rng_seed_val, 0};
};

// A seed and how many numbers have been taken. Kernels never see the generator: they get both at
// launch. States can be shared between generators (graphsafe_get_state), hence a lock of its own
// beside GeneratorImpl::mutex_, which callers hold over several calls.
class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  static constexpr std::size_t kStateBytes =
      16;  // seed, offset: CUDA's layout, which DTensor counts on

  explicit PhiloxGenerator(c10::DeviceIndex device,
                           std::shared_ptr<SharedState> state = std::make_shared<SharedState>())
      : GeneratorImpl({kDeviceType, device}, c10::DispatchKeySet(backend::kDispatchKey)),
        state_(std::move(state)) {}

  static c10::DeviceType device_type() { return kDeviceType; }

  void set_current_seed(std::uint64_t seed) override { set({seed, 0}); }

  void set_offset(std::uint64_t offset) override {
    check_offset(offset);
    const std::lock_guard lock(state_->mutex);
    state_->philox.offset = offset;
  }

  std::uint64_t get_offset() const override { return get().offset; }

  std::uint64_t current_seed() const override { return get().seed; }

  std::uint64_t seed() override {
    const auto seed =
        c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);  // 53 bits: exact in a double
    set_current_seed(seed);
    return seed;
  }

  void set_state(const c10::TensorImpl& tensor) override {
    at::detail::check_rng_state(tensor);
    TORCH_CHECK(tensor.numel() == static_cast<std::int64_t>(kStateBytes),
                "openreg: RNG state is wrong size (got ", tensor.numel(), " bytes, expected ",
                kStateBytes, ")");
    PhiloxState state{};
    static_assert(sizeof state == kStateBytes);
    std::memcpy(&state, tensor.data(), sizeof state);
    check_offset(state.offset);
    set(state);
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto state = get();
    auto tensor =
        at::empty({static_cast<std::int64_t>(kStateBytes)}, at::TensorOptions().dtype(at::kByte));
    std::memcpy(tensor.mutable_data_ptr(), &state, sizeof state);
    return tensor.getIntrusivePtr();
  }

  // Graph-safe: the state itself changes hands, not a copy of its numbers.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    TORCH_CHECK(other->device().type() == kDeviceType, "Expected a '", kDeviceType,
                "' device type for generator but found '", other->device().type(), "'");
    state_ = static_cast<const PhiloxGenerator&>(*other).state_;
  }

  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<PhiloxGenerator>(device().index(), state_);
  }

  PhiloxState reserve(std::uint64_t numbers) {
    const std::lock_guard lock(state_->mutex);
    const auto taken = state_->philox;
    state_->philox.offset += (numbers + kNumbersPerRound - 1) / kNumbersPerRound * kNumbersPerRound;
    return taken;
  }

 private:
  static void check_offset(std::uint64_t offset) {
    // Negative numbers of Python arrive as the largest ones of all.
    const auto given = static_cast<std::int64_t>(offset);
    TORCH_CHECK(given >= 0 && offset % kNumbersPerRound == 0,
                "openreg: RNG offset is invalid (got ", given, ", expected a multiple of ",
                kNumbersPerRound, " from 0 to 2^63 - 1)");
  }

  PhiloxGenerator* clone_impl() const override {
    auto copy = std::make_unique<PhiloxGenerator>(device().index());
    copy->set(get());
    return copy.release();
  }

  PhiloxState get() const {
    const std::lock_guard lock(state_->mutex);
    return state_->philox;
  }

  void set(PhiloxState state) {
    const std::lock_guard lock(state_->mutex);
    state_->philox = state;
  }

  std::shared_ptr<SharedState> state_;
};

}  // namespace

PhiloxState reserve_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           std::uint64_t increment) {
  auto* philox =
      at::get_generator_or_default<PhiloxGenerator>(generator, default_generator(device));
  TORCH_CHECK(philox->device().index() == resolve_device(device),
              "openreg: the generator is of another device (got ", philox->device(),
              ", expected openreg:", static_cast<int>(resolve_device(device)), ")");
  const std::lock_guard lock(philox->mutex_);
  return philox->reserve(increment);
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  struct Slot {
    std::once_flag made;
    at::Generator generator;
  };
  static auto& slots = *new std::array<Slot, kMaxDevices>;  // leaked: PyTorch keeps references
  const auto index = resolve_device(device);
  auto& slot = slots[device_slot(index)];
  std::call_once(slot.made, [&] {
    slot.generator = new_generator(index);
    slot.generator.seed();
  });
  return slot.generator;
}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<PhiloxGenerator>(resolve_device(device));
}

}  // namespace openreg::backend
