#include "backend/faults.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>

#include "address_space/address_space.h"
#include "backend/exception.h"
#include "base/device_name.h"
#include "base/error.h"
#include "memory/command_check.h"
#include "runtime/callbacks.h"
#include "runtime/device_health.h"
#include "runtime/process.h"
#include "runtime/trace.h"

namespace openreg::backend {

namespace {

FaultPoint point_of_command(const Kernel& kernel, std::span<const std::byte> arguments) {
  const bool copies = kernel.summary(arguments).kind == CommandSummary::Kind::kCopy;
  return copies ? FaultPoint::kCopy : FaultPoint::kLaunch;
}

std::byte* accessible_memory(std::uintptr_t address) {
  const auto* const pointer = reinterpret_cast<const std::byte*>(address);
  const auto& space = AddressSpace::get();
  return const_cast<std::byte*>(space.device_of(pointer) >= 0
                                    ? static_cast<const std::byte*>(space.aperture(pointer))
                                    : pointer);
}

/// One bit of the `bytes` bytes at `address`.
CommandFault::BitFlip flip_in(std::byte* address, std::size_t bytes, std::uint64_t random) {
  return {address + random / 8 % bytes, std::byte{1} << random % 8};
}

/// The first memory that is written; null if none is.
const memory::MemoryUse* first_written(std::span<const memory::MemoryUse> used) {
  const auto found = std::ranges::find_if(
      used, [](const auto& use) { return use.writes && !use.footprint.empty(); });
  return found == used.end() ? nullptr : &*found;
}

/// A bit of it.
void add_flip(CommandFault& fault, std::span<const memory::MemoryUse> used, std::uint64_t random) {
  const auto& use = *first_written(used);
  const auto& footprint = use.footprint;
  // Of memory with gaps, the first element, which is certainly written.
  const std::size_t bytes = footprint.is_contiguous() ? footprint.bytes() : use.itemsize;
  fault.flips.push_back(flip_in(accessible_memory(footprint.begin()), bytes, random));
}

/// What can happen to any command of `device`: the rest of `fault` is for the thread that runs it.
void add_fault(CommandFault& fault, const FiredFault& fired, openreg::Stream& stream, int device,
               std::span<const memory::MemoryUse> used) {
  const auto& spec = fired.fault->spec();
  switch (spec.kind) {
    case FaultKind::kSlow:
      fault.delay += spec.delay;
      break;
    case FaultKind::kError:
      fault.error = fired.fault->describe();
      break;
    case FaultKind::kCorrupt:
      add_flip(fault, used, fired.fault->random(fired.number));
      break;
    case FaultKind::kHang:
      fired.fault->hang(stream);
      break;
    case FaultKind::kCrash:
      fault.crashes = true;
      break;
    case FaultKind::kLost:
      lose_device(device, fired.fault->describe());
      check_healthy(device);
      break;
    case FaultKind::kOutOfMemory:
    case FaultKind::kExit:
      break;  // not of commands
  }
}

/// Fault injection. It is asked before the other checks: what they refuse has been counted.
class FaultInjection final : public memory::CommandCheck {
  std::string before_allocation(openreg::Stream& stream) override {
    const int device = stream.device();
    std::string failure;
    for (const auto& [fault, number] :
         faults::count_event({.point = FaultPoint::kAllocation, .device = device})) {
      if (fault->spec().kind == FaultKind::kLost) {
        lose_device(device, fault->describe());
      } else {
        failure = fault->describe();
      }
    }
    check_healthy(device);
    return failure;
  }

  // What is captured is not launched: it counts when the graph runs. Collectives count themselves.
  void before_enqueue(memory::Launch& launch) override {
    if (launch.kernel == nullptr || launch.capture != 0) return;
    const auto fault = fault_of(launch, *launch.kernel, launch.arguments, launch.stream.device());
    if (fault.empty()) return;
    with_faulty_command(*launch.kernel, launch.arguments, fault,
                        [&](const Kernel& kernel, std::span<const std::byte> arguments) {
                          launch.replaced.assign(arguments.begin(), arguments.end());
                          launch.kernel = &kernel;
                          launch.arguments = launch.replaced;
                        });
  }

  // A command that hangs does so before the run.
  void before_replay(memory::Launch& launch) override {
    if (launch.capture != 0) return;
    for (std::uint32_t i = 0; i < launch.nodes->nodes.size(); ++i) {
      const auto& node = launch.nodes->nodes[i];
      auto fault =
          fault_of(launch, *node.kernel, node.arguments, launch.nodes->lanes[node.lane].device);
      if (!fault.empty()) launch.faults.emplace(i, std::move(fault));
    }
  }

  // Counts a command: what goes wrong with it.
  static CommandFault fault_of(const memory::Launch& launch, const Kernel& kernel,
                               std::span<const std::byte> arguments, int device) {
    check_healthy(launch.stream.device());  // a call that is refused is not counted
    CommandFault fault;
    for (const auto& fired : faults::count_event({.point = point_of_command(kernel, arguments),
                             .name = kernel.name(),
                             .device = device,
                             .can_corrupt = first_written(launch.memory) != nullptr,
                             .in_executor = kernel.traits().in_executor}))
      add_fault(fault, fired, launch.stream, device, launch.memory);
    return fault;
  }
};

const bool kInstalled = [] {
  install_callbacks({.faults_armed = [](bool any) {
    static auto& injection = *new FaultInjection;
    any ? memory::checks::add(injection, memory::checks::kFaults)
        : memory::checks::remove(memory::checks::kFaults);
  }});
  return true;
}();

}  // namespace

CollectiveFault fault_of_collective(openreg::Stream& stream, const char* name, int rank) {
  CollectiveFault result;
  CommandFault fault;
  for (const auto& fired : faults::count_event({.point = FaultPoint::kCollective,
                           .name = name,
                           .device = stream.device(),
                           .rank = rank})) {
    switch (fired.fault->spec().kind) {
      case FaultKind::kExit:
        std::fprintf(stderr, "openreg: rank %d exits: %s\n", rank, fired.fault->describe().c_str());
        faults::print_summary();
        std::fflush(nullptr);
        std::_Exit(1);
      case FaultKind::kHang:
        result.hangs = fired.fault;
        break;
      default:
        add_fault(fault, fired, stream, stream.device(), {});
    }
  }
  if (fault.delay.count() != 0) enqueue_delay(stream, fault.delay);
  result.error = fault.error;
  return result;
}

std::vector<std::string> reset_device(int device, bool keep_memory) {
  return translate_errors([&] {
    check_usable();
    return reset_health(device, [&] {
      if (keep_memory || !is_initialized()) return;
      memory::device_heap(device).overwrite(std::byte{255});
      memory::checks::notify(&memory::CommandCheck::overwritten, device);
    });
  });
}

void HostCopy::begin(openreg::Stream& stream, const char* name) {
  translate_errors([&] {
    CommandFault of_copy;
    for (const auto& fired : faults::count_event({.point = FaultPoint::kCopy,
                             .name = name,
                             .device = stream.device(),
                             .can_corrupt = true})) {
      const auto& fault = *fired.fault;
      if (fault.spec().kind == FaultKind::kCorrupt) {
        corrupts_ = fault.random(fired.number);
        continue;
      }
      add_fault(of_copy, fired, stream, stream.device(), {});
      if (fault.spec().kind == FaultKind::kHang) stream.synchronize();
    }
    CommandFault{.delay = of_copy.delay}.apply_around([] {});
    if (of_copy.error.empty()) return;
    throw InjectedError("openreg: " + of_copy.error + ": " + name + " of " +
                        device_name(stream.device()));
  });
}

void HostCopy::corrupt(void* memory, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  const auto [address, bit] = flip_in(static_cast<std::byte*>(memory), bytes, *corrupts_);
  *address ^= bit;
}

}  // namespace openreg::backend
