#include "backend/generator.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/exception.h"
#include "backend/graph.h"
#include "backend/stream.h"
#include "backend/thread_current.h"
#include "base/device_name.h"
#include "base/quantity.h"
#include "runtime/device_health.h"
#include "runtime/process.h"
#include "slot.h"

namespace openreg::backend {

namespace {

// A round of Philox 4x32-10 yields four numbers, and kernels take whole rounds.
constexpr std::uint64_t kNumbersPerRound = 4;

// A flag in the offset of a captured command: the other bits are relative to the cell's offset, and
// the seed is the cell's address.
constexpr std::uint64_t kFromCell = std::uint64_t{1} << 63;

/// After the greatest offset, numbers begin again at 0: an offset never reaches the flag.
std::uint64_t advance(std::uint64_t offset, std::uint64_t numbers) {
  return (offset + numbers) & ~kFromCell;
}

// Does not initialise the device: a program may seed it and never use it.
CaptureId current_capture(c10::DeviceIndex device) {
  return is_capturing() ? capture_of(current_stream(device)) : 0;
}

}  // namespace

/// The state that one or several generators draw from.
struct PhiloxSource {
  struct Captured {
    CaptureId capture;
    std::uint64_t cell;
    std::uint64_t taken;  // the position in the graph's numbers; setting a state changes it
    bool drawn;
  };

  std::mutex mutex;
  PhiloxState philox{c10::default_rng_seed_val, 0};
  std::vector<Captured> captured;  // captures under way that have it
};

namespace {

// A seed and how many numbers have been taken. Kernels never see the generator: a launch reads
// both, advances the offset by the numbers that its kernel will use (reserve_philox), and passes
// them to the kernel. So the order of launches decides the numbers, and nothing waits. Generators
// can share a state (graphsafe_get_state), so the state has its own lock besides
// GeneratorImpl::mutex_, which callers hold over several calls.
class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  static constexpr std::size_t kStateBytes =
      16;  // seed, offset: CUDA's layout, which DTensor relies on

  // The key takes part in the dispatch of operators that are called with the generator.
  explicit PhiloxGenerator(c10::DeviceIndex device,
                           std::shared_ptr<PhiloxSource> state = std::make_shared<PhiloxSource>())
      : GeneratorImpl({kDeviceType, device}, c10::DispatchKeySet(backend::kDispatchKey)),
        state_(std::move(state)) {}

  static c10::DeviceType device_type() { return kDeviceType; }

  void set_current_seed(std::uint64_t seed) override {
    expect_healthy();
    if (current_capture(device().index()) == 0) return set({seed, 0});
    expect_same_seed(seed);
  }

  void set_offset(std::uint64_t offset) override {
    expect_not_captured("offset");
    check_offset(offset);
    const std::lock_guard lock(state_->mutex);
    state_->philox.offset = offset;
  }

  std::uint64_t get_offset() const override {
    expect_not_captured("offset");
    return get().offset;
  }

  std::uint64_t current_seed() const override { return get().seed; }

  std::uint64_t seed() override {
    expect_not_captured("random seed");
    const auto seed =
        c10::detail::getNonDeterministicRandom(/*is_cuda=*/true);  // 53 bits: exact in a double
    set_current_seed(seed);
    return seed;
  }

  // In a capture, a state's offset is the position in the graph's numbers, so a state that was read
  // in the same capture can be set again, as checkpointing does. A state that holds only a seed
  // begins at 0.
  void set_state(const c10::TensorImpl& tensor) override {
    expect_healthy();
    at::detail::check_rng_state(tensor);
    PhiloxState state{};
    static_assert(sizeof state == kStateBytes && offsetof(PhiloxState, seed) == 0);
    const auto size = static_cast<std::uint64_t>(tensor.numel());
    TORCH_CHECK(size == kStateBytes || size == sizeof state.seed,
                "openreg: RNG state is wrong size (got ", format_count(size, "byte"), ", expected ",
                kStateBytes, ", or ", sizeof state.seed, " for a seed alone)");
    std::memcpy(&state, tensor.data(), size);
    check_offset(state.offset);
    const auto capture = current_capture(device().index());
    if (capture == 0) return set(state);
    expect_same_seed(state.seed);
    std::unique_lock lock(state_->mutex);
    part_in(capture, lock).taken = state.offset;
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    expect_healthy();
    auto state = get();
    if (const auto capture = current_capture(device().index()); capture != 0) {
      std::unique_lock lock(state_->mutex);
      state.offset = part_in(capture, lock).taken;
    }
    // Not dispatched: within a FakeTensorMode this is a real tensor, too.
    const at::TensorBase tensor =
        at::detail::empty_cpu({static_cast<std::int64_t>(kStateBytes)}, at::kByte);
    std::memcpy(tensor.mutable_data_ptr(), &state, sizeof state);
    return tensor.getIntrusivePtr();
  }

  // Graph-safe: the generators then share the state itself, not a copy of its numbers.
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& other) override {
    TORCH_CHECK(other->device().type() == kDeviceType, "Expected a '", kDeviceType,
                "' device type for generator but found '", other->device().type(), "'");
    state_ = static_cast<const PhiloxGenerator&>(*other).state_;
  }

  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<PhiloxGenerator>(device().index(), state_);
  }

  PhiloxState reserve(std::uint64_t numbers) {
    const auto rounded = (numbers + kNumbersPerRound - 1) / kNumbersPerRound * kNumbersPerRound;
    const auto capture = current_capture(device().index());
    std::unique_lock lock(state_->mutex);
    if (capture != 0) {
      auto& part = part_in(capture, lock);
      part.drawn = true;
      const PhiloxState taken{part.cell, part.taken | kFromCell};
      part.taken = advance(part.taken, rounded);
      return taken;
    }
    const auto taken = state_->philox;
    state_->philox.offset = advance(taken.offset, rounded);
    return taken;
  }

  const std::shared_ptr<PhiloxSource>& source() const noexcept { return state_; }

 private:
  /// The state's part in the capture, which the state joins now if it has not yet. `lock` is the
  /// state's, and is held again on return.
  PhiloxSource::Captured& part_in(CaptureId capture, std::unique_lock<std::mutex>& lock) const {
    const auto find = [&] {
      return std::ranges::find(state_->captured, capture, &PhiloxSource::Captured::capture);
    };
    if (find() == state_->captured.end()) {
      lock.unlock();
      CapturableGraph::register_in_capture(
          capture, std::make_shared<CapturedGenerator>(state_, device().index()));
      lock.lock();
    }
    const auto found = find();
    TORCH_CHECK(found != state_->captured.end(),
                "openreg: a generator cannot join a capture that has ended");
    return *found;
  }

  // Each run of a graph uses the seed that the generator has at that time.
  void expect_same_seed(std::uint64_t seed) const {
    const auto now = get().seed;
    TORCH_CHECK(seed == now,
                "openreg: set_current_seed can be called during stream capture only if new seed is "
                "the same as the original seed (got ",
                seed, ", expected ", now,
                "); seed the generator before the capture, or before a replay");
  }

  // As on CUDA, although the state is the host's.
  void expect_healthy() const {
    translate_errors([&] { check_healthy(device().index()); });
  }

  // A run of the graph would not repeat the access.
  void expect_not_captured(const char* what) const {
    expect_healthy();
    TORCH_CHECK(
        current_capture(device().index()) == 0, "openreg: a generator's ", what,
        " cannot be used while the current stream is captured; do it before the capture, or "
        "after it");
  }

  static void check_offset(std::uint64_t offset) {
    // Negative numbers from Python arrive as very large ones.
    const auto given = static_cast<std::int64_t>(offset);
    TORCH_CHECK(given >= 0 && offset % kNumbersPerRound == 0,
                "openreg: RNG offset is invalid (got ", given, ", expected a multiple of ",
                kNumbersPerRound, " from 0 to 2^63 - 1)");
  }

  PhiloxGenerator* clone_impl() const override {
    expect_not_captured("clone");
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

  std::shared_ptr<PhiloxSource> state_;
};

PhiloxGenerator& philox_of(const at::Generator& generator) {
  TORCH_CHECK(generator.defined() && generator.device().type() == kDeviceType,
              "openreg: the generator has the wrong device type (got ",
              generator.defined() ? generator.device().str() : "none",
              ", expected a device of type ", kDeviceName, ")");
  return static_cast<PhiloxGenerator&>(*generator.unsafeGetGeneratorImpl());
}

}  // namespace

PhiloxState philox_of_command(PhiloxState carried) noexcept {
  if ((carried.offset & kFromCell) == 0) return carried;
  PhiloxState now{};
  const auto* const cell = reinterpret_cast<const void*>(carried.seed);
  std::memcpy(&now, AddressSpace::get().aperture(cell), sizeof now);
  return {now.seed, advance(now.offset, carried.offset)};
}

CapturedGenerator::CapturedGenerator(const at::Generator& generator)
    : CapturedGenerator(philox_of(generator).source(), generator.device().index()) {}

// The default stream is never captured, so the cell does not lie in a graph's pool.
CapturedGenerator::CapturedGenerator(std::shared_ptr<PhiloxSource> source, c10::DeviceIndex device)
    : source_(std::move(source)),
      cell_(allocate_raw(sizeof(PhiloxState), default_stream(device))) {}

CapturedGenerator::~CapturedGenerator() {
  end_capture();
  deallocate_raw(cell_);
}

void CapturedGenerator::begin_capture(CaptureId capture) {
  const std::lock_guard lock(source_->mutex);
  source_->captured.push_back({capture, reinterpret_cast<std::uint64_t>(cell_), 0, false});
  capture_ = capture;
}

void CapturedGenerator::end_capture() noexcept {
  const std::lock_guard lock(source_->mutex);
  const auto found =
      std::ranges::find(source_->captured, capture_, &PhiloxSource::Captured::capture);
  if (found == source_->captured.end()) return;
  taken_ = found->taken;
  drawn_ = found->drawn;
  source_->captured.erase(found);
}

ReplayParameter CapturedGenerator::take() {
  const std::lock_guard lock(source_->mutex);
  const auto now = source_->philox;
  source_->philox.offset = advance(now.offset, taken_);
  return {cell_, {now.seed, now.offset}};
}

PhiloxState reserve_philox(const std::optional<at::Generator>& generator, c10::DeviceIndex device,
                           std::uint64_t increment) {
  auto* philox =
      at::get_generator_or_default<PhiloxGenerator>(generator, default_generator(device));
  TORCH_CHECK(philox->device().index() == resolve_device(device),
              "openreg: the generator belongs to another device (got ", philox->device(),
              ", expected ", device_name(resolve_device(device)), ")");
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
    slot.generator = at::make_generator<PhiloxGenerator>(index);
    slot.generator.seed();
  });
  return slot.generator;
}

at::Generator new_generator(c10::DeviceIndex device) {
  translate_errors([] { check_usable(); });
  const auto index = resolve_device(device);
  TORCH_CHECK(
      current_capture(index) == 0,
      "openreg: a generator cannot be created while the current stream is captured; create it "
      "before the capture");
  return at::make_generator<PhiloxGenerator>(index);
}

}  // namespace openreg::backend
