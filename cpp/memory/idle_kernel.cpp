#include "memory/idle_kernel.h"

#include <cstring>

namespace openreg::memory {

namespace {

void run_nothing(const Kernel&, std::span<const std::byte>) {}

void fill(const Kernel&, std::span<const std::byte> arguments) {
  std::size_t count = 0;
  auto rest = arguments.first(arguments.size() - sizeof count);
  std::memcpy(&count, arguments.data() + rest.size(), sizeof count);
  for (; count > 0; --count) {
    IdleKernel::Fill each;
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

}  // namespace

IdleKernel::IdleKernel(const Kernel& kernel, bool fills)
    : Kernel(StandsFor{kernel}, fills ? &fill : &run_nothing,
             {.brief = true, .summarize = kernel.traits().summarize}) {}

// Behind the arguments of the command: the fills and their number.
std::vector<std::byte> IdleKernel::with_fills(std::span<const std::byte> arguments,
                                              std::span<const Fill> fills) {
  const std::size_t count = fills.size();
  std::vector<std::byte> result;
  result.reserve(arguments.size() + fills.size_bytes() + sizeof count);
  const auto append = [&](std::span<const std::byte> bytes) {
    result.insert(result.end(), bytes.begin(), bytes.end());
  };
  append(arguments);
  append(std::as_bytes(fills));
  append(std::as_bytes(std::span(&count, 1)));
  return result;
}

}  // namespace openreg::memory
