#include "memory/value_tracker.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <span>

#include "address_space/address_space.h"
#include "base/error.h"
#include "base/settings.h"
#include "memory/idle_kernel.h"

namespace openreg::memory {

// Note [Without computing]
//
// With TORCH_OPENREG_COMPUTE=0 a program runs as always: each command is launched, ordered,
// captured and traced, and its memory is allocated and freed. But most kernels are replaced by one
// of the same name that does nothing, and that is queued only if its run is observable. So memory
// is never touched, however much is allocated, and a step of a large model takes as long as its
// launches.
//
// Programs must take the same path as if they computed: they look at masks, lengths, counters and
// scales. So commands whose tensors are all small are run, if what they read is known. What is read
// of values that nobody has computed is zero:
// - Integers and booleans are computed of such zeros, so that loops over them end.
// - Numbers with a fraction are not, because the logarithm or the quotient of zeros is not finite:
//   they are zero themselves.
// - topk() and argmax() choose each index equally often if the user assumes balanced routing.
// - all() is true and any() is false, so checks for infinities pass; no gradient has infinities, so
//   a gradient scaler neither skips steps nor changes its scale.
// Which values are known is decided at the launch, in the order of the calls. A graph decides it
// anew in each run, because its inputs may have changed.
namespace {

constexpr std::size_t kMostIntegers = std::size_t{1} << 20;
constexpr std::size_t kMostNumbers = 4096;
constexpr std::uint64_t kMostReads = 100'000;  // in one line, of values that were not computed
constexpr std::string_view kInt64 = "int64";

// Of the names that backend::dtype_name() returns. Called for each tensor of each launch.
bool is_integral(const char* dtype) {
  return dtype[0] == 'i' || dtype[0] == 'u' || (dtype[0] == 'b' && dtype[1] == 'o');
}

bool has_prefix(std::string_view name, std::span<const std::string_view> prefixes) {
  return std::ranges::any_of(prefixes, [&](auto each) { return name.starts_with(each); });
}

// Operators that write their first tensor without reading it.
bool only_writes(std::string_view op) {
  static constexpr auto kOps = std::to_array<std::string_view>({"aten::_copy_from",
                                                                "aten::_foreach_copy_",
                                                                "aten::_foreach_zero_",
                                                                "aten::arange",
                                                                "aten::bernoulli_",
                                                                "aten::cauchy_",
                                                                "aten::copy_",
                                                                "aten::exponential_",
                                                                "aten::eye",
                                                                "aten::fill_",
                                                                "aten::geometric_",
                                                                "aten::linspace",
                                                                "aten::log_normal_",
                                                                "aten::logspace",
                                                                "aten::normal_",
                                                                "aten::random_",
                                                                "aten::randperm",
                                                                "aten::range",
                                                                "aten::tril_indices",
                                                                "aten::triu_indices",
                                                                "aten::uniform_",
                                                                "aten::zero_",
                                                                "copy_bytes"});
  return has_prefix(op, kOps);
}

// "aten::add_.Tensor"
bool is_in_place(std::string_view op) { return op.substr(0, op.find('.')).ends_with('_'); }

bool finds_infinities(std::string_view op) {
  return op == "aten::_amp_foreach_non_finite_check_and_unscale_";
}

// Operators that choose one or some of the elements along a dimension, by their index.
bool chooses(std::string_view op) {
  return op.starts_with("aten::topk") || op.starts_with("aten::argmax") ||
         op.starts_with("aten::argmin") || op.starts_with("aten::multinomial");
}

// What stands for a result that is not computed, in each of its bytes.
std::uint8_t stand_in(std::string_view op, std::string_view dtype) {
  const bool is_true = dtype == "bool" && (op == "aten::all" || op.starts_with("aten::all."));
  return is_true ? 1 : 0;
}

std::byte* accessible(std::uintptr_t address) {
  auto* const pointer = reinterpret_cast<std::byte*>(address);
  const auto& space = AddressSpace::get();
  return space.device_of(pointer) < 0 ? pointer : static_cast<std::byte*>(space.aperture(pointer));
}

}  // namespace

std::atomic<ValueTracker*> ValueTracker::instance_{nullptr};

void ValueTracker::start_if_enabled() {
  if (computes() || get() != nullptr) return;
  auto& tracker = *new ValueTracker;  // leaked, as all checks are
  checks::add(tracker, checks::kValues);
  instance_ = &tracker;
}

bool ValueTracker::is_small(std::size_t bytes, const char* dtype) noexcept {
  return bytes <= kMostNumbers || (bytes <= kMostIntegers && is_integral(dtype));
}

const Kernel& ValueTracker::idle(const Kernel& kernel, bool fills) {
  auto& known = idle_[&kernel][fills ? 1 : 0];
  if (!known) known = std::make_unique<const IdleKernel>(kernel, fills);
  return *known;
}

Values ValueTracker::value_of(const void* storage) const {
  const auto found = values_.find(storage);
  return found == values_.end() ? Values::kNone : found->second;
}

void ValueTracker::put(const void* storage, Values values) {
  if (values == Values::kNone) {
    values_.erase(storage);
  } else {
    values_[storage] = values;
  }
}

ValueTracker::Operator ValueTracker::operator_of(std::string_view name) {
  return {.only_writes = only_writes(name),
          .in_place = is_in_place(name),
          .finds_infinities = finds_infinities(name),
          .chooses = chooses(name)};
}

// Whether the command runs, as far as it depends on values, and what it does to them. Returns what
// is known of all that it reads.
Values ValueTracker::decide(const Launch& launch, Step& step) {
  auto found = operators_.find(launch.name);
  if (found == operators_.end())
    found = operators_.emplace(launch.name, operator_of(launch.name)).first;
  const auto& op = found->second;
  // Whether it is written and not read: a result, or an output that the caller gives
  // (ArgumentPlace in ops/wire/argument_writer.h), or, if the kernel does not say what its tensors
  // are, what it writes.
  const auto is_overwritten = [&](std::int16_t argument) {
    constexpr std::int16_t kUnknown = -1, kResult = -2, kOut = -3, kOutput = -5;
    if (argument == kUnknown) return !op.in_place || op.only_writes;
    return argument == kResult || argument == kOut || argument == kOutput || op.only_writes;
  };
  auto values = Values::kKnown;
  step.effects.clear();
  step.is_small = true;
  for (const auto& use : launch.memory) {
    const auto bytes = use.footprint.bytes();
    const bool overwritten = use.writes && is_overwritten(use.argument);
    const Effect effect{
        .storage = use.storage,
        .reads = !overwritten && !use.pinned,
        .writes = use.writes && !use.pinned,
        .wholly = overwritten && bytes >= use.storage_bytes,
        .is_small = is_small(bytes, use.dtype),
        .becomes_known = op.finds_infinities && use.storage_bytes <= sizeof(double),
        .becomes_assumed = op.chooses && assumptions_.balanced_routing && use.dtype == kInt64};
    step.is_small &= effect.is_small;
    if (effect.reads) values = std::min(values, value_of(effect.storage));
    if (effect.reads || effect.writes) step.effects.push_back(effect);
  }
  const auto writes_numbers = [&] {
    return std::ranges::any_of(
        launch.memory, [](const auto& use) { return use.writes && !is_integral(use.dtype); });
  };
  // What owns something, or stands for an action outside of the device, does so.
  const bool must = launch.kernel == nullptr || launch.kernel->traits().once ||
                    launch.kernel->traits().skip != nullptr;
  const bool has_code = launch.kernel == nullptr || launch.kernel->has_code();
  step.runs =
      must || (has_code && step.is_small &&
               (values == Values::kKnown || (values >= Values::kZeros && !writes_numbers())));
  return values;
}

Values ValueTracker::read_by(const Step& step) const {
  auto values = Values::kKnown;
  for (const auto& effect : step.effects)
    if (effect.reads) values = std::min(values, value_of(effect.storage));
  return values;
}

void ValueTracker::apply(const Step& step, Values read) {
  const auto values = step.runs && step.is_small ? read : Values::kNone;
  for (const auto& effect : step.effects) {
    if (!effect.writes) continue;
    const auto written = std::max(values, effect.is_small ? Values::kZeros : Values::kNone);
    if (effect.becomes_known) {
      put(effect.storage, Values::kKnown);
    } else if (effect.becomes_assumed && !step.runs) {
      put(effect.storage, Values::kAssumed);
    } else {  // as little as of the rest
      put(effect.storage, effect.wholly ? written : std::min(written, value_of(effect.storage)));
    }
  }
}

// What stands for a result.
IdleKernel::Fill ValueTracker::fill_for(const Launch& launch, const MemoryUse& use) const {
  IdleKernel::Fill fill{accessible(use.footprint.begin()), use.footprint.bytes(), 0,
                        stand_in(launch.name, use.dtype)};
  if (!assumptions_.balanced_routing || !chooses(launch.name) || use.dtype != kInt64) return fill;
  const auto elements = [](const MemoryUse& of) {
    return std::accumulate(of.sizes.begin(), of.sizes.end(), std::int64_t{1}, std::multiplies());
  };
  const auto chosen = [&]() -> std::int64_t {  // of each row
    if (std::string_view(launch.name).starts_with("aten::arg")) return 1;
    return use.sizes.empty() ? 1 : use.sizes.back();
  }();
  for (const auto& input : launch.memory) {
    if (!input.writes && elements(use) != 0)
      fill.modulus = std::max<std::int64_t>(1, elements(input) * chosen / elements(use));
  }
  return fill;
}

void ValueTracker::before_enqueue(Launch& launch) {
  if (launch.memory.empty()) return;
  const LockGuard lock(mutex_);
  const auto read = decide(launch, step_);
  ++(step_.runs ? computed_ : skipped_);
  apply(step_, read);
  if (launch.capture != 0) captured_[launch.capture].push_back(step_);
  if (!step_.runs) make_idle(launch);
}

void ValueTracker::make_idle(Launch& launch) {
  std::vector<IdleKernel::Fill> fills;
  bool pinned = false;
  for (const auto& use : launch.memory) {
    pinned |= use.pinned;
    if (!use.writes || use.footprint.empty() || !use.footprint.is_contiguous()) continue;
    // The host may read pinned memory, of any size.
    const bool may_be_read = use.pinned || is_small(use.footprint.bytes(), use.dtype);
    if (!may_be_read && !assumptions_.balanced_routing) continue;
    const auto fill = fill_for(launch, use);
    if (may_be_read || fill.modulus != 0) fills.push_back(fill);
  }
  launch.kernel = &idle(*launch.kernel, !fills.empty());
  if (!pinned) launch.idle = launch.kernel;
  if (fills.empty()) return;
  launch.idle_writes = true;
  launch.replaced = IdleKernel::with_fills(launch.arguments, fills);
  launch.arguments = launch.replaced;
}

void ValueTracker::before_replay(Launch& launch) {
  const LockGuard lock(mutex_);
  const auto found = captured_.find(launch.graph);
  if (found == captured_.end()) return;
  const auto steps = found->second;
  for (const auto& step : steps) apply(step, read_by(step));
  if (launch.capture == 0) return;
  auto& captured = captured_[launch.capture];
  captured.insert(captured.end(), steps.begin(), steps.end());
}

void ValueTracker::withdrawn(Launch& launch) {
  const LockGuard lock(mutex_);
  for (const auto& use : launch.memory)
    if (use.writes) put(use.storage, Values::kNone);
}

void ValueTracker::graph_destroyed(CaptureId capture) {
  const LockGuard lock(mutex_);
  captured_.erase(capture);
}

void ValueTracker::forget(const void* storage) {
  const LockGuard lock(mutex_);
  values_.erase(storage);
}

Values ValueTracker::values_of(const void* storage) const {
  const LockGuard lock(mutex_);
  return value_of(storage);
}

void ValueTracker::written(const void* storage, bool wholly, Values values) {
  const LockGuard lock(mutex_);
  put(storage, wholly ? values : std::min(values, value_of(storage)));
}

void ValueTracker::host_access(const char* op, const MemoryUse& memory) {
  if (memory.writes || memory.pinned || memory.footprint.empty()) return;
  if (values_of(memory.storage) >= Values::kAssumed) return;
  const auto line = line_in_program();  // takes Python's lock, so before this one
  {
    const LockGuard lock(mutex_);
    if (++reads_[{line, op}] < kMostReads) return;
  }
  throw Error("openreg: " + std::string(op) + " has read a value that was not computed " +
              std::to_string(kMostReads) +
              " times in the same line; a loop that waits for it would not end without computing");
}

Assumptions ValueTracker::assumptions() const {
  const LockGuard lock(mutex_);
  return assumptions_;
}

void ValueTracker::assume(const Assumptions& assumptions) {
  const LockGuard lock(mutex_);
  assumptions_ = assumptions;
}

ValueTracker::Report ValueTracker::report() const {
  const LockGuard lock(mutex_);
  Report report{.computed = computed_, .skipped = skipped_, .reads = {}};
  for (const auto& [read, count] : reads_) report.reads.push_back({read.first, read.second, count});
  return report;
}

}  // namespace openreg::memory
