#include "runtime/settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/error.h"
#include "runtime/host_memory.h"

namespace openreg {

namespace {

constexpr int kMaxEngines = 1024;
// From one page of memory, as segments are committed, to what an address space of 47 bits has room
// for.
constexpr std::size_t kMinMemory = std::size_t{2} << 20;
constexpr std::size_t kMaxMemory = std::size_t{16} << 40;

std::optional<std::string_view> environment(const char* variable) {
  // Safe as long as no other thread calls setenv meanwhile: the first use of a device is not the
  // time for that.
  // NOLINTNEXTLINE(concurrency-mt-unsafe)
  const char* value = std::getenv(variable);
  if (value == nullptr) return std::nullopt;
  return value;
}

[[noreturn]] void malformed(const char* variable, std::string_view value,
                            const std::string& expected) {
  throw Error("openreg: " + std::string(variable) + " is malformed (got \"" + std::string(value) +
              "\", expected " + expected + ")");
}

// Digits only: no sign, no space, nothing after them. nullopt also for what does not fit.
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

int read_integer(const char* variable, int otherwise, int highest) {
  const auto text = environment(variable);
  if (!text) return otherwise;
  const auto number = parse_number(*text);
  if (!number || *number < 1 || *number > static_cast<std::uint64_t>(highest)) {
    malformed(variable, *text, "an integer from 1 to " + std::to_string(highest));
  }
  return static_cast<int>(*number);
}

bool read_switch(const char* variable, bool otherwise) {
  const auto text = environment(variable);
  if (!text) return otherwise;
  if (*text != "0" && *text != "1") malformed(variable, *text, "0 or 1");
  return *text == "1";
}

std::optional<std::size_t> read_memory(const char* variable, int devices) {
  const auto text = environment(variable);
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

int default_engines() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) - 1, 1, kMaxEngines);
}

}  // namespace

Settings read_settings() {
  Settings result;
  result.devices =
      read_integer("TORCH_OPENREG_DEVICES", result.devices, static_cast<int>(kMaxDevices));
  result.memory = read_memory("TORCH_OPENREG_MEMORY", result.devices);
  result.engines = read_integer("TORCH_OPENREG_ENGINES", default_engines(), kMaxEngines);
  result.launch_blocking = read_switch("TORCH_OPENREG_LAUNCH_BLOCKING", result.launch_blocking);
  result.fault_message = read_switch("TORCH_OPENREG_FAULT_MESSAGE", result.fault_message);
  result.debug_memory = read_switch("TORCH_OPENREG_DEBUG_MEMORY", result.debug_memory);
  return result;
}

const Settings& settings() {
  static const Settings result =
      read_settings();  // an initialisation that throws is tried again by the next call
  return result;
}

int device_count() noexcept {
  try {
    return settings().devices;
  } catch (...) {
    return 0;
  }
}

}  // namespace openreg
