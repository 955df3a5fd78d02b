#include "runtime/fault_table.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <string_view>
#include <utility>

#include "base/device_name.h"
#include "base/error.h"
#include "base/mix.h"
#include "base/once.h"
#include "base/quantity.h"
#include "base/settings.h"
#include "runtime/callbacks.h"
#include "runtime/event.h"

namespace openreg {

namespace {

constexpr std::size_t kMostFaultPlaces = 16;
constexpr std::size_t kMostPrinted = 50;

double in_unit_interval(std::uint64_t bits) noexcept {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

/// "aten::add_.Tensor" -> "aten::add": some operators have one kernel for all their forms.
std::string_view operator_of(std::string_view name) {
  name = name.substr(0, name.find('.'));
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

/// Whether `op` is the name, or that of the operator without an overload.
bool names_operator(std::string_view op, std::string_view name) {
  if (op == name) return true;
  return op.find('.') == std::string_view::npos && operator_of(op) == operator_of(name);
}

std::string describe_event(const FaultEvent& event, const FaultSpec& spec, std::uint64_t number) {
  std::string place = std::string(name_of(spec.point)) + " " + std::to_string(number);
  if (event.name[0] != '\0') place += " (" + std::string(event.name) + ")";
  if (event.device >= 0) place += " on " + device_name(event.device);
  return place;
}

// All faults of one specification.
struct FaultTotal {
  std::string text;
  std::uint64_t armed = 0;
  ArmedFault::Counts counts{};
  std::optional<std::uint64_t> seed{};
  bool from_settings = false;

  void add(const ArmedFault& fault) {
    const auto more = fault.counts();
    ++armed;
    counts.counted += more.counted;
    counts.fired += more.fired;
    if (fault.from() == ArmedFault::From::kSettings) from_settings = true;
    if (fault.spec().probability < 1) seed = fault.seed();
    if (counts.where.empty()) counts.where = more.where;
  }
  std::string line() const {
    std::string line = text + ": ";
    if (counts.fired == 0) {
      line += "never fired";
    } else {
      line += "fired " + format_count(counts.fired, "time");
      if (!counts.where.empty()) line += ", first at " + counts.where.front();
    }
    line += "; " + std::to_string(counts.counted) + " counted";
    if (armed > 1) line += ", injected " + format_count(armed, "time");
    if (seed) line += ", seed=" + std::to_string(*seed);
    return line;
  }
};

std::string lines_of(const std::vector<FaultTotal>& totals, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(totals.size(), most); ++i)
    text += "  " + totals[i].line() + "\n";
  if (totals.size() > most) text += "  and " + std::to_string(totals.size() - most) + " more\n";
  return text;
}

class FaultTable {
 public:
  static FaultTable& get() {
    static FaultTable& table = *new FaultTable;  // leaked: asked until the process ends
    return table;
  }

  void add(const std::shared_ptr<ArmedFault>& fault) {
    const LockGuard lock(mutex_);
    armed_.push_back(fault);
    total_of(ended_, *fault);
    publish();
  }
  bool remove(const std::shared_ptr<ArmedFault>& fault) {
    const LockGuard lock(mutex_);
    if (std::erase(armed_, fault) == 0) return false;
    publish();
    total_of(ended_, *fault).add(*fault);
    return true;
  }
  std::vector<std::shared_ptr<ArmedFault>> armed() const {
    const LockGuard lock(mutex_);
    return armed_;
  }
  /// One for each specification, in the order in which they were armed first.
  std::vector<FaultTotal> totals() const {
    const LockGuard lock(mutex_);
    auto totals = ended_;
    for (const auto& fault : armed_) total_of(totals, *fault).add(*fault);
    return totals;
  }

 private:
  // The entry is made when the first one is armed, which decides its place.
  static FaultTotal& total_of(std::vector<FaultTotal>& totals, const ArmedFault& fault) {
    const auto& text = fault.spec().text;
    auto found = std::ranges::find(totals, text, &FaultTotal::text);
    if (found == totals.end()) found = totals.insert(totals.end(), FaultTotal{.text = text});
    return *found;
  }

  void publish() OPENREG_REQUIRES(mutex_) {
    faults::detail::g_armed.store(static_cast<int>(armed_.size()), std::memory_order_release);
    if (const auto armed = current_callbacks().faults_armed) armed(!armed_.empty());
  }

  mutable Mutex mutex_;  // held while the mutexes of faults are taken
  std::vector<std::shared_ptr<ArmedFault>> armed_ OPENREG_GUARDED_BY(mutex_);
  std::vector<FaultTotal> ended_ OPENREG_GUARDED_BY(mutex_);
};

}  // namespace

namespace {

bool is_of_this_process(const FaultSpec& spec) {
  const auto process = launched_process();
  if (spec.restart && *spec.restart != process.restart) return false;
  // A collective's rank is the global one, which need not be the launcher's.
  return !spec.rank || spec.point == FaultPoint::kCollective || spec.rank == process.rank;
}

}  // namespace

ArmedFault::ArmedFault(FaultSpec spec, std::uint64_t seed, From from)
    : spec_(std::move(spec)),
      seed_(seed),
      from_(from),
      in_this_process_(is_of_this_process(spec_)) {}

bool ArmedFault::is_about(const FaultEvent& event) const noexcept {
  if (!in_this_process_) return false;
  const bool command = event.point == FaultPoint::kLaunch || event.point == FaultPoint::kCopy;
  if (spec_.point == FaultPoint::kOperator) {
    if (!command || !names_operator(spec_.op, event.name)) return false;
  } else if (spec_.point != event.point) {
    return false;
  }
  if (spec_.kind == FaultKind::kCorrupt && !event.can_corrupt) return false;
  if (spec_.kind == FaultKind::kCrash && !event.in_executor) return false;
  if (spec_.device && *spec_.device != event.device) return false;
  if (event.point == FaultPoint::kCollective && spec_.rank && *spec_.rank != event.rank)
    return false;
  return spec_.match.empty() || fnmatch(spec_.match.c_str(), event.name, 0) == 0;
}

std::optional<std::uint64_t> ArmedFault::count_event(const FaultEvent& event) {
  if (!is_about(event)) return std::nullopt;
  const LockGuard lock(mutex_);
  const auto number = ++counts_.counted;
  if (number < spec_.first || (spec_.times && counts_.fired >= *spec_.times)) return std::nullopt;
  if (spec_.probability < 1 && in_unit_interval(random(number)) >= spec_.probability)
    return std::nullopt;
  ++counts_.fired;
  if (counts_.where.size() < kMostFaultPlaces)
    counts_.where.push_back(describe_event(event, spec_, number));
  return number;
}

std::uint64_t ArmedFault::random(std::uint64_t number) const noexcept {
  return mix(mix(seed_) + number);
}

ArmedFault::Counts ArmedFault::counts() const {
  const LockGuard lock(mutex_);
  return counts_;
}

void ArmedFault::hang(Stream& stream) {
  const auto event = std::make_shared<ExternalEvent>("openreg::hang");
  event->wait(stream);
  hang(stream.device(), [event] { event->signal(); });
}

void ArmedFault::hang(int device, std::function<void()> end) {
  {
    const LockGuard lock(mutex_);
    if (!released_) {
      hangs_.push_back({device, std::move(end)});
      return;
    }
  }
  end();
}

void ArmedFault::release(int device) {
  std::vector<Hang> ended;
  {
    const LockGuard lock(mutex_);
    if (device < 0) released_ = true;
    std::vector<Hang> kept;
    for (auto& hang : hangs_)
      (device < 0 || hang.device == device ? ended : kept).push_back(std::move(hang));
    hangs_ = std::move(kept);
  }
  for (const auto& hang : ended) hang.end();
}

namespace faults {

constinit std::atomic<int> detail::g_armed{0};

std::vector<FiredFault> detail::count_event(const FaultEvent& event) {
  std::vector<FiredFault> fired;
  for (auto& fault : FaultTable::get().armed()) {
    if (const auto number = fault->count_event(event)) fired.push_back({std::move(fault), *number});
  }
  return fired;
}

namespace {

void expect_possible(const FaultSpec& spec) {
  if (spec.kind != FaultKind::kCrash || settings().executor_process) return;
  throw Error("openreg: the fault " + spec.text +
              " needs TORCH_OPENREG_EXECUTOR=process: otherwise a crash would end the program");
}

}  // namespace

void start() {
  static const Once once([] {
    for (const auto& spec : settings().faults) expect_possible(spec);  // before any is armed
    for (const auto& spec : settings().faults) arm(spec, ArmedFault::From::kSettings);
  });
}

std::shared_ptr<ArmedFault> arm(FaultSpec spec, ArmedFault::From from) {
  expect_possible(spec);
  const bool by_chance = spec.probability < 1 && !spec.seed;
  const auto seed = by_chance ? std::random_device()() : spec.seed.value_or(0);
  if (by_chance) {
    std::fprintf(stderr, "openreg: fault %s: random seed=%llu\n", spec.text.c_str(),
                 static_cast<unsigned long long>(seed));
  }
  auto fault = std::make_shared<ArmedFault>(std::move(spec), seed, from);
  FaultTable::get().add(fault);
  return fault;
}

void disarm(const std::shared_ptr<ArmedFault>& fault) {
  if (FaultTable::get().remove(fault)) fault->release();
}

std::optional<std::string> count_and_describe(const FaultEvent& event) {
  const auto fired = count_event(event);
  if (fired.empty()) return std::nullopt;
  return fired.front().fault->describe();
}

void release_hung(int device) {
  for (const auto& fault : FaultTable::get().armed()) fault->release(device);
}

std::string summary() { return lines_of(FaultTable::get().totals(), SIZE_MAX); }

void print_summary() noexcept {
  static std::atomic_flag printed = ATOMIC_FLAG_INIT;
  if (printed.test_and_set()) return;
  try {
    auto totals = FaultTable::get().totals();
    std::erase_if(totals, [](const FaultTotal& total) {
      return !total.from_settings && total.counts.fired != 0;  // the program has seen it
    });
    const std::string lines = lines_of(totals, kMostPrinted);
    if (!lines.empty()) std::fprintf(stderr, "openreg: injected faults:\n%s", lines.c_str());
  } catch (const std::exception&) {  // no memory for the lines
    std::fprintf(stderr, "openreg: faults were injected; no memory is left to list them\n");
  }
}

}  // namespace faults

}  // namespace openreg
