#include "base/fault_spec.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace openreg {

namespace {

using Kind = FaultKind;
using Point = FaultPoint;

constexpr std::array<std::pair<std::string_view, Kind>, 8> kKinds{{{"oom", Kind::kOutOfMemory},
                                                                   {"error", Kind::kError},
                                                                   {"corrupt", Kind::kCorrupt},
                                                                   {"slow", Kind::kSlow},
                                                                   {"hang", Kind::kHang},
                                                                   {"lost", Kind::kLost},
                                                                   {"exit", Kind::kExit},
                                                                   {"crash", Kind::kCrash}}};

constexpr std::array<std::pair<std::string_view, Point>, 7> kPoints{
    {{"allocation", Point::kAllocation},
     {"launch", Point::kLaunch},
     {"copy", Point::kCopy},
     {"collective", Point::kCollective},
     {"pin", Point::kPin},
     {"ipc", Point::kIpc},
     {"compile", Point::kCompile}}};

constexpr std::string_view kOperators = "an operator's name such as aten::mm";

// The points at which a kind can occur.
std::vector<Point> points_of(Kind kind) {
  switch (kind) {
    case Kind::kOutOfMemory:
      return {Point::kAllocation, Point::kPin};
    case Kind::kError:
      return {Point::kLaunch, Point::kCopy,    Point::kCollective,
              Point::kIpc,    Point::kCompile, Point::kOperator};
    case Kind::kCorrupt:
      return {Point::kLaunch, Point::kCopy, Point::kOperator};
    case Kind::kSlow:
    case Kind::kHang:
      return {Point::kLaunch, Point::kCopy, Point::kCollective, Point::kOperator};
    case Kind::kLost:
      return {Point::kAllocation, Point::kLaunch, Point::kCopy, Point::kCollective,
              Point::kOperator};
    case Kind::kCrash:
      return {Point::kLaunch, Point::kOperator};
    case Kind::kExit:
      break;
  }
  return {Point::kCollective};
}

std::string in_quotes(std::string_view text) { return "\"" + std::string(text) + "\""; }

[[noreturn]] void refuse_fault(const std::string& what, std::string_view got,
                               const std::string& expected) {
  throw Error("openreg: invalid fault: " + what + " (got " + in_quotes(got) + ", expected " +
              expected + ")");
}

std::string one_of(const std::vector<std::string_view>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i != 0) list += i + 1 == names.size() ? " or " : ", ";
    list += names[i];
  }
  return list;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

template <class T>
std::optional<T> parsed_number(std::string_view text) {
  T value{};
  const auto* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || parsed != end) return std::nullopt;
  return value;
}

std::uint64_t count_from_one(const std::string& what, std::string_view text) {
  const auto value = parsed_number<std::uint64_t>(text);
  if (!value || *value == 0) refuse_fault(what, text, "a number from 1");
  return *value;
}

int index_from_zero(const std::string& what, std::string_view text) {
  const auto value = parsed_number<int>(text);
  if (!value || *value < 0) refuse_fault(what, text, "a number from 0");
  return *value;
}

std::chrono::nanoseconds parse_duration(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits{
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  constexpr double kLongest = 1e9 * 86400 * 365;
  for (const auto& [unit, nanoseconds] : kUnits) {
    if (!text.ends_with(unit)) continue;
    const auto value = parsed_number<double>(text.substr(0, text.size() - unit.size()));
    if (!value || !(*value >= 0) || *value * nanoseconds > kLongest) break;
    return std::chrono::nanoseconds(static_cast<std::int64_t>(*value * nanoseconds));
  }
  refuse_fault("malformed time", text, "a number with ns, us, ms or s, such as 2ms");
}

Kind kind_of(std::string_view text) {
  std::vector<std::string_view> names;
  for (const auto& [name, kind] : kKinds) {
    if (name == text) return kind;
    names.push_back(name);
  }
  refuse_fault("unknown kind", text, one_of(names));
}

// "aten::add" or "aten::add.Tensor"
bool is_operator(std::string_view text) {
  const auto colons = text.find("::");
  if (colons == std::string_view::npos) return false;
  const auto is_name = [](std::string_view name, std::string_view others) {
    return !name.empty() && std::ranges::all_of(name, [&](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
             others.find(c) != std::string_view::npos;
    });
  };
  return is_name(text.substr(0, colons), "_") && is_name(text.substr(colons + 2), "_.");
}

Point point_of(std::string_view text, Kind kind, std::string_view kind_name) {
  const auto allowed = points_of(kind);
  std::vector<std::string_view> names;
  for (const auto& [name, point] : kPoints) {
    if (std::ranges::find(allowed, point) == allowed.end()) continue;
    if (name == text) return point;
    names.push_back(name);
  }
  if (std::ranges::find(allowed, Point::kOperator) != allowed.end()) {
    if (is_operator(text)) return Point::kOperator;
    names.push_back(kOperators);
  }
  refuse_fault("no such place for " + in_quotes(kind_name), text, one_of(names));
}

// The colon before an ordinal, which is not one of the two in an operator's name.
std::size_t ordinal_colon(std::string_view where) {
  const auto colon = where.rfind(':');
  const bool in_name = colon != std::string_view::npos && colon > 0 && where[colon - 1] == ':';
  return in_name ? std::string_view::npos : colon;
}

// Returns its name.
std::string_view read_option(FaultSpec& spec, std::string_view option) {
  const auto equals = option.find('=');
  const auto name = trimmed(option.substr(0, equals));
  const auto value =
      equals == std::string_view::npos ? std::string_view() : trimmed(option.substr(equals + 1));
  const bool has_name = spec.point == Point::kLaunch || spec.point == Point::kCopy ||
                        spec.point == Point::kCollective || spec.point == Point::kOperator;
  const bool has_device = spec.point != Point::kPin && spec.point != Point::kCompile;
  if (name == "device" && has_device) {
    spec.device = index_from_zero("malformed device", value);
  } else if (name == "times") {
    spec.times = count_from_one("malformed times", value);
  } else if (name == "seed") {
    spec.seed = parsed_number<std::uint64_t>(value);
    if (!spec.seed) refuse_fault("malformed seed", value, "a number below 2^64");
  } else if (name == "probability") {
    const auto probability = parsed_number<double>(value);
    if (!probability || !(*probability > 0) || *probability > 1)
      refuse_fault("malformed probability", value, "a number above 0, at most 1");
    spec.probability = *probability;
  } else if (name == "match" && has_name) {
    if (value.empty()) refuse_fault("empty pattern", option, "match=PATTERN with * and ?");
    spec.match = value;
  } else if (name == "rank") {
    spec.rank = index_from_zero("malformed rank", value);
  } else if (name == "restart") {
    spec.restart = index_from_zero("malformed restart", value);
  } else {
    std::vector<std::string_view> names{"times", "probability", "seed", "rank", "restart"};
    if (has_device) names.insert(names.begin(), "device");
    if (has_name) names.push_back("match");
    refuse_fault("unsupported option", option, one_of(names) + ", with a value");
  }
  return name;
}

std::vector<std::string_view> split_at(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto end = text.find(separator);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

const char* name_of(FaultPoint point) noexcept {
  for (const auto& [name, each] : kPoints) {
    if (each == point) return name.data();
  }
  return "call";
}

FaultSpec FaultSpec::parse(std::string_view head, const std::vector<std::string>& options) {
  FaultSpec spec;
  head = trimmed(head);
  spec.text = head;
  for (const auto& option : options) spec.text += "," + option;
  const auto at = head.find('@');
  if (at == std::string_view::npos)
    refuse_fault("no place", head, "KIND@PLACE, such as oom@allocation:100");
  const auto kind = trimmed(head.substr(0, at));
  spec.kind = kind_of(kind);
  auto where = trimmed(head.substr(at + 1));
  const auto equals = where.find('=');
  const bool slow = spec.kind == Kind::kSlow;
  if (slow != (equals != std::string_view::npos)) {
    refuse_fault(slow ? "no time" : "a time is for \"slow\" only", head,
                 slow ? "slow@PLACE=TIME, such as slow@copy:*=2ms" : "no \"=\" after the place");
  }
  if (slow) {
    spec.delay = parse_duration(trimmed(where.substr(equals + 1)));
    where = trimmed(where.substr(0, equals));
  }
  const auto colon = ordinal_colon(where);
  const auto place = trimmed(where.substr(0, colon));
  spec.point = point_of(place, spec.kind, kind);
  if (spec.point == Point::kOperator) spec.op = place;
  bool numbered = false;
  if (colon != std::string_view::npos) {
    const auto ordinal = trimmed(where.substr(colon + 1));
    numbered = ordinal != "*";
    if (numbered) {
      const auto first = parsed_number<std::uint64_t>(ordinal);
      if (!first || *first == 0)
        refuse_fault("malformed call number", ordinal, "a number from 1, or *");
      spec.first = *first;
    }
  }
  std::vector<std::string_view> given;
  for (const auto& option : options) {
    const auto name = read_option(spec, trimmed(option));
    if (std::ranges::find(given, name) != given.end())
      refuse_fault("repeated option", option, "each option once");
    given.push_back(name);
  }
  const bool by_chance = std::ranges::find(given, "probability") != given.end();
  const bool once = numbered || colon == std::string_view::npos;
  if (!spec.times && once && !by_chance) spec.times = 1;
  return spec;
}

FaultSpec FaultSpec::parse(std::string_view text) {
  const auto parts = split_at(text, ',');
  std::vector<std::string> options;
  for (std::size_t i = 1; i < parts.size(); ++i) options.emplace_back(parts[i]);
  return parse(parts[0], options);
}

std::vector<FaultSpec> FaultSpec::parse_list(std::string_view text) {
  std::vector<FaultSpec> specs;
  for (const auto part : split_at(text, ';')) {
    if (!part.empty()) specs.push_back(parse(part));
  }
  return specs;
}

}  // namespace openreg
