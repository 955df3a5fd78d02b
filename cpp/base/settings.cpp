#include "base/settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/usable_cores.h"

namespace openreg {

namespace {

constexpr std::string_view kPrefix = "TORCH_OPENREG_";

// A setting: its name after the prefix, and its value if the variable is not set, which is empty if
// there is none or it depends on the machine.
struct Variable {
  std::string_view name;
  std::string_view otherwise;
};
constexpr auto kVariables = std::to_array<Variable>({
    {"DEVICES", "2"},
    {"MEMORY", ""},
    {"ENGINES", ""},
    {"LAUNCH_BLOCKING", "0"},
    {"FAULT_MESSAGE", "1"},
    {"DEBUG_MEMORY", "0"},
    {"DETECT_RACES", "0"},
    {"CPU_FALLBACK", "1"},
    {"STACKS", "0"},
    {"TRACE_RECORDS", "1048576"},
    {"SCHEDULE", "earliest"},
    {"FAULTS", ""},
    {"STICKY_ERRORS", "0"},
    {"EXECUTOR", "thread"},
    {"FAKE_WORLD", ""},
    {"COMPUTE", "1"},
    {"AUTOLOAD", "default"},  // read in Python, as is the next
    {"FITS", ""},
});

constexpr int kMaxEngines = 1024;
constexpr int kMostTraceRecords = 1 << 30;
constexpr int kMostRanks = 1 << 16;
// From one huge page, the unit in which memory is committed, to what fits into an address space of
// 47 bits.
constexpr std::size_t kMinMemory = std::size_t{2} << 20;
constexpr std::size_t kMaxMemory = std::size_t{16} << 40;

// The setting that a variable of the environment is, or nullptr.
const Variable* find_setting(std::string_view variable) {
  if (!variable.starts_with(kPrefix)) return nullptr;
  const auto* const found =
      std::ranges::find(kVariables, variable.substr(kPrefix.size()), &Variable::name);
  return found == kVariables.end() ? nullptr : found;
}

std::optional<std::string_view> any_environment(const char* variable) {
  // Safe unless another thread calls setenv at the same time, which a program must not do during
  // the first use of a device. NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* value = std::getenv(variable);
  if (value == nullptr) return std::nullopt;
  return value;
}

// The value of a setting, or its default; nullopt if it has none.
std::optional<std::string_view> setting_text(const char* variable) {
  const Variable* const setting = find_setting(variable);
  assert(setting != nullptr);
  const auto value = any_environment(variable);
  return value || setting->otherwise.empty() ? value : std::optional(setting->otherwise);
}

[[noreturn]] void malformed(const char* variable, std::string_view value,
                            const std::string& expected) {
  throw Error("openreg: " + std::string(variable) + " is malformed (got \"" + std::string(value) +
              "\", expected " + expected + ")");
}

// Digits only: no sign, no space, nothing after them. nullopt also if the number does not fit.
std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  struct Unit {
    std::string_view suffix;
    int shift;
  };
  static constexpr std::array<Unit, 4> kUnits{{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  int shift = 0;
  for (const auto& unit : kUnits) {
    if (text.ends_with(unit.suffix)) {
      text.remove_suffix(unit.suffix.size());
      shift = unit.shift;
      break;
    }
  }
  const auto number = parse_number(text);
  if (!number || *number > (UINT64_MAX >> shift)) return std::nullopt;
  return *number << shift;
}

int read_integer(const char* variable, int highest, int otherwise = 0) {
  const auto text = setting_text(variable);
  if (!text) return otherwise;
  const auto number = parse_number(*text);
  if (!number || *number < 1 || *number > static_cast<std::uint64_t>(highest)) {
    malformed(variable, *text, "an integer from 1 to " + std::to_string(highest));
  }
  return static_cast<int>(*number);
}

bool read_switch(const char* variable) {
  const auto text = setting_text(variable).value_or("");
  if (text != "0" && text != "1") malformed(variable, text, "0 or 1");
  return text == "1";
}

RaceDetectionMode read_race_detection_mode(const char* variable) {
  const auto text = setting_text(variable).value_or("");
  if (text == "0" || text == "off" || text == "default") return RaceDetectionMode::kOff;
  if (text == "warn") return RaceDetectionMode::kWarn;
  if (text != "1" && text != "error") malformed(variable, text, "0, \"warn\" or 1");
  return RaceDetectionMode::kError;
}

std::optional<std::size_t> read_memory(const char* variable, int devices) {
  const auto text = setting_text(variable);
  if (!text) return std::nullopt;
  std::optional<std::uint64_t> bytes;
  if (text->ends_with('%')) {
    const auto percent = parse_number(text->substr(0, text->size() - 1));
    if (percent && *percent >= 1 && *percent <= 100) {
      bytes = std::max(default_device_memory(devices) / 100 * *percent, kMinMemory);
    }
  } else {
    bytes = parse_size(*text);
  }
  if (!bytes || *bytes < kMinMemory || *bytes > kMaxMemory) {
    malformed(variable, *text,
              "a size from 2MiB to 16TiB, such as \"8GiB\", \"512MiB\" or \"1073741824\", or a "
              "percentage of the default "
              "from \"1%\" to \"100%\"");
  }
  return *bytes;
}

Schedule read_schedule(const char* variable) {
  const auto text = setting_text(variable).value_or("");
  const auto schedule = Schedule::parse(text);
  if (!schedule) malformed(variable, text, Schedule::kExpected);
  return *schedule;
}

bool read_executor(const char* variable) {
  const auto text = setting_text(variable).value_or("");
  if (text != "thread" && text != "default" && text != "process")
    malformed(variable, text, "\"thread\" or \"process\"");
  return text == "process";
}

std::vector<FaultSpec> read_faults(const char* variable) {
  const auto text = setting_text(variable);
  if (!text) return {};
  try {
    return FaultSpec::parse_list(*text);
  } catch (const Error& error) {
    throw Error("openreg: " + std::string(variable) +
                " is malformed: " + describe_cause(std::make_exception_ptr(error)));
  }
}

// Without computing, device memory has no contents that could be checked, changed or shared.
void expect_no_contents(const Settings& settings) {
  const auto refuse = [](const char* other) {
    throw Error(std::string("openreg: TORCH_OPENREG_COMPUTE=0 excludes ") + other +
                ", which needs the contents of device memory; unset one of the two");
  };
  if (settings.executor_process) refuse("TORCH_OPENREG_EXECUTOR=process");
  if (settings.debug_memory) refuse("TORCH_OPENREG_DEBUG_MEMORY=1");
  const auto corrupts = [](const FaultSpec& fault) { return fault.kind == FaultKind::kCorrupt; };
  if (std::ranges::any_of(settings.faults, corrupts))
    refuse("faults of the kind corrupt in TORCH_OPENREG_FAULTS");
}

// The number of letters that must be inserted, removed or replaced to turn one into the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string_view nearest_name(std::string_view name) {
  const auto distance = [name](const Variable& each) { return edit_distance(name, each.name); };
  return std::ranges::min_element(kVariables, {}, distance)->name;
}

int default_engines() { return std::clamp(usable_cores() - 1, 1, kMaxEngines); }

}  // namespace

Settings read_settings() {
  Settings result;
  result.devices = read_integer("TORCH_OPENREG_DEVICES", static_cast<int>(kMaxDevices));
  result.memory = read_memory("TORCH_OPENREG_MEMORY", result.devices);
  result.engines = read_integer("TORCH_OPENREG_ENGINES", kMaxEngines, default_engines());
  result.launch_blocking = read_switch("TORCH_OPENREG_LAUNCH_BLOCKING");
  result.fault_message = read_switch("TORCH_OPENREG_FAULT_MESSAGE");
  result.debug_memory = read_switch("TORCH_OPENREG_DEBUG_MEMORY");
  result.detect_races = read_race_detection_mode("TORCH_OPENREG_DETECT_RACES");
  result.cpu_fallback = read_switch("TORCH_OPENREG_CPU_FALLBACK");
  result.stacks = read_switch("TORCH_OPENREG_STACKS");
  result.trace_records = read_integer("TORCH_OPENREG_TRACE_RECORDS", kMostTraceRecords);
  result.schedule = read_schedule("TORCH_OPENREG_SCHEDULE");
  result.faults = read_faults("TORCH_OPENREG_FAULTS");
  result.sticky_errors = read_switch("TORCH_OPENREG_STICKY_ERRORS");
  result.executor_process = read_executor("TORCH_OPENREG_EXECUTOR");
  result.fake_world = read_integer("TORCH_OPENREG_FAKE_WORLD", kMostRanks);
  result.compute = read_switch("TORCH_OPENREG_COMPUTE");
  if (!result.compute) expect_no_contents(result);
  return result;
}

const Settings& settings() {
  static const Settings result =
      read_settings();  // an initialisation that throws is tried again by the next call
  return result;
}

namespace {
enum class Choice : std::uint8_t { kNone, kIdle, kComputing };
std::atomic<Choice> g_choice{Choice::kNone};
}  // namespace

bool computes() {
  const auto choice = g_choice.load(std::memory_order_relaxed);
  return choice == Choice::kNone ? settings().compute : choice == Choice::kComputing;
}

void choose_computing(bool computes) {
  if (!computes) expect_no_contents(settings());
  g_choice = computes ? Choice::kComputing : Choice::kIdle;
}

LaunchedProcess launched_process() {
  const auto read = [](const char* variable) -> std::optional<int> {
    const auto number = parse_number(any_environment(variable).value_or(""));
    if (!number || *number > INT_MAX) return std::nullopt;
    return static_cast<int>(*number);
  };
  return {.rank = read("RANK"), .restart = read("TORCHELASTIC_RESTART_COUNT").value_or(0)};
}

namespace {

constexpr std::size_t kKiB = 1024;

/// ":SIZE:COUNT", anywhere and repeated, with sizes in KiB.
std::optional<std::size_t> workspace_bytes(std::string_view text) {
  std::optional<std::size_t> total;
  while (!text.empty()) {
    std::size_t size = 0;
    std::size_t count = 0;
    const auto* const end = text.data() + text.size();
    const auto number = [end](const char* from, std::size_t& to) {
      if (from == end || *from != ':') return from;
      const auto [rest, error] = std::from_chars(from + 1, end, to);
      return error == std::errc() ? rest : from;
    };
    const auto* const second = number(text.data(), size);
    const auto* const rest = second == text.data() ? second : number(second, count);
    if (rest == second) {
      text.remove_prefix(1);
      continue;
    }
    total = total.value_or(0) + size * kKiB * count;
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  }
  return total;
}

CudaLibrarySettings read_cuda_library_settings() {
  const auto text = [](const char* name) { return any_environment(name).value_or(""); };
  CudaLibrarySettings result;
  result.blas_workspace = workspace_bytes(text("CUBLAS_WORKSPACE_CONFIG"));
  if (const auto size = parse_number(text("CUBLASLT_WORKSPACE_SIZE")))
    result.blaslt_workspace = static_cast<std::size_t>(*size) * kKiB;
  result.unified_blas_workspace = text("TORCH_CUBLASLT_UNIFIED_WORKSPACE") != "0";
  result.cudnn_attention_last = text("TORCH_CUDNN_SDPA_DEPRIORITIZED") == "1";
  return result;
}

}  // namespace

const CudaLibrarySettings& cuda_library_settings() {
  static const auto result = read_cuda_library_settings();
  return result;
}

int device_count() noexcept {
  try {
    return settings().devices;
  } catch (const std::exception& error) {
    static std::atomic_flag reported = ATOMIC_FLAG_INIT;
    if (!reported.test_and_set()) std::fprintf(stderr, "%s; there are no devices\n", error.what());
    return 0;
  }
}

std::vector<std::pair<std::string, std::string>> setting_texts() {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [name, otherwise] : kVariables) {
    const auto variable = std::string(kPrefix) + std::string(name);
    texts.emplace_back(variable, any_environment(variable.c_str()).value_or(otherwise));
  }
  return texts;
}

std::vector<std::string> unknown_settings() {
  std::vector<std::string> lines;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view variable = text.substr(0, text.find('='));
    if (!variable.starts_with(kPrefix) || find_setting(variable) != nullptr) continue;
    lines.push_back("openreg: " + std::string(variable) + " is not a setting; did you mean " +
                    std::string(kPrefix) +
                    std::string(nearest_name(variable.substr(kPrefix.size()))) + "?");
  }
  return lines;
}

}  // namespace openreg
