#include "memory/value_tracker.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

#include "address_space/address_space.h"
#include "base/error.h"
#include "base/settings.h"

namespace openreg::memory {

// Note [Without computing]
//
// With TORCH_OPENREG_COMPUTE=0 a program runs as always: each command is launched, ordered,
// captured and traced, and its memory is allocated and freed. But in place of most kernels runs one
// of the same name that does nothing. So memory is never touched, however much is allocated, and a
// step of a large model takes as long as its launches.
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

bool is_integral(std::string_view dtype) {
  return dtype.starts_with("int") || dtype.starts_with("uint") || dtype == "bool";
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

// Whether it is written and not read: a result, or an output that the caller gives
// (ArgumentPlace in ops/wire/argument_writer.h), or, if the kernel does not say what its tensors
// are, what it writes.
bool is_overwritten(std::string_view op, const MemoryUse& use) {
  constexpr std::int16_t kUnknown = -1, kResult = -2, kOut = -3, kOutput = -5;
  if (!use.writes) return false;
  if (use.argument == kUnknown) return !is_in_place(op) || only_writes(op);
  return use.argument == kResult || use.argument == kOut || use.argument == kOutput ||
         only_writes(op);
}

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

void run_nothing(const Kernel&, std::span<const std::byte>) {}

}  // namespace

std::atomic<ValueTracker*> ValueTracker::instance_{nullptr};

void ValueTracker::start_if_enabled() {
  if (computes() || get() != nullptr) return;
  auto& tracker = *new ValueTracker;  // leaked, as all checks are
  checks::add(tracker, checks::kValues);
  instance_ = &tracker;
}

bool ValueTracker::is_small(std::size_t bytes, std::string_view dtype) noexcept {
  return bytes <= (is_integral(dtype) ? kMostIntegers : kMostNumbers);
}

// Stands for a kernel, in errors and traces too. With fills, its arguments are the command's, and
// behind them the fills and their number.
class ValueTracker::IdleKernel final : public Kernel {
 public:
  IdleKernel(const Kernel& kernel, bool fills)
      : Kernel(StandsFor{kernel}, fills ? &fill : &run_nothing,
               {.brief = true, .summarize = kernel.traits().summarize}) {}

  static void append(std::vector<std::byte>& arguments, std::span<const Fill> fills) {
    const auto append_bytes = [&](const void* from, std::size_t bytes) {
      const auto begin = arguments.size();
      arguments.resize(begin + bytes);
      std::memcpy(arguments.data() + begin, from, bytes);
    };
    append_bytes(fills.data(), fills.size_bytes());
    const std::size_t count = fills.size();
    append_bytes(&count, sizeof count);
  }

 private:
  static void fill(const Kernel&, std::span<const std::byte> arguments) {
    std::size_t count = 0;
    auto rest = arguments.first(arguments.size() - sizeof count);
    std::memcpy(&count, arguments.data() + rest.size(), sizeof count);
    for (; count > 0; --count) {
      Fill each;
      rest = rest.first(rest.size() - sizeof each);
      std::memcpy(&each, rest.data() + rest.size(), sizeof each);
      if (each.modulus == 0) {
        std::memset(each.begin, each.value, each.bytes);
        continue;
      }
      auto* const numbers = reinterpret_cast<std::int64_t*>(each.begin);
      for (std::size_t i = 0; i < each.bytes / sizeof *numbers; ++i)
        numbers[i] = static_cast<std::int64_t>(i) % each.modulus;
    }
  }
};

const Kernel& ValueTracker::idle(const Kernel& kernel, bool fills) {
  auto& known = idle_[{&kernel, fills}];
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

// Whether the command runs, as far as it depends on values, and what it does to them.
ValueTracker::Step ValueTracker::decide(const Launch& launch) const {
  Step step{};
  bool all_small = true;
  bool writes_numbers = false;
  for (const auto& use : launch.memory) {
    all_small &= is_small(use.footprint.bytes(), use.dtype);
    writes_numbers |= use.writes && !is_integral(use.dtype);
    const bool overwritten = is_overwritten(launch.name, use);
    if (!overwritten && !use.pinned) step.needs.push_back(use.storage);
    if (!use.writes || use.pinned) continue;
    const bool wholly = overwritten && use.footprint.bytes() >= use.storage_bytes;
    step.writes.push_back({use.storage, wholly, is_small(use.footprint.bytes(), use.dtype)});
    if (assumptions_.balanced_routing && chooses(launch.name) && use.dtype == kInt64)
      step.becomes_assumed.push_back(use.storage);
    if (finds_infinities(launch.name) && use.storage_bytes <= sizeof(double))
      step.becomes_known.push_back(use.storage);
  }
  auto values = Values::kKnown;
  for (const auto* storage : step.needs) values = std::min(values, value_of(storage));
  // What owns something, or stands for an action outside of the device, does so.
  const bool must = launch.kernel == nullptr || launch.kernel->traits().once ||
                    launch.kernel->traits().skip != nullptr;
  const bool has_code = launch.kernel == nullptr || launch.kernel->has_code();
  step.runs = must || (has_code && all_small &&
                       (values == Values::kKnown || (values >= Values::kZeros && !writes_numbers)));
  step.is_small = all_small;
  return step;
}

void ValueTracker::apply(const Step& step) {
  auto values = step.runs && step.is_small ? Values::kKnown : Values::kNone;
  for (const auto* storage : step.needs) values = std::min(values, value_of(storage));
  for (const auto& [storage, wholly, small] : step.writes) {
    const auto after = std::max(values, small ? Values::kZeros : Values::kNone);
    put(storage, wholly ? after : std::min(after, value_of(storage)));  // as little as of the rest
  }
  if (!step.runs) {
    for (const auto* storage : step.becomes_assumed) put(storage, Values::kAssumed);
  }
  for (const auto* storage : step.becomes_known) put(storage, Values::kKnown);
}

// What stands for a result.
ValueTracker::Fill ValueTracker::fill_for(const Launch& launch, const MemoryUse& use) const {
  Fill fill{accessible(use.footprint.begin()), use.footprint.bytes(), 0,
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
  const auto step = decide(launch);
  ++(step.runs ? computed_ : skipped_);
  apply(step);
  if (launch.capture != 0) captured_[launch.capture].push_back(step);
  if (step.runs) return;
  std::vector<Fill> fills;
  for (const auto& use : launch.memory) {
    const auto bytes = use.footprint.bytes();
    if (!use.writes || bytes == 0 || !use.footprint.is_contiguous()) continue;
    // The host may read pinned memory, of any size.
    const auto fill = fill_for(launch, use);
    if (use.pinned || fill.modulus != 0 || is_small(bytes, use.dtype)) fills.push_back(fill);
  }
  if (!fills.empty()) {
    launch.replaced.assign(launch.arguments.begin(), launch.arguments.end());
    IdleKernel::append(launch.replaced, fills);
    launch.arguments = launch.replaced;
  }
  launch.kernel = &idle(*launch.kernel, !fills.empty());
}

void ValueTracker::before_replay(Launch& launch) {
  const LockGuard lock(mutex_);
  const auto found = captured_.find(launch.graph);
  if (found == captured_.end()) return;
  const auto steps = found->second;
  for (const auto& step : steps) apply(step);
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
  const auto line = current_line();  // takes Python's lock, so before this one
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
