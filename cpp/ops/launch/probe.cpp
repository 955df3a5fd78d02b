#include "ops/launch/probe.h"

#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "backend/clean_state.h"
#include "backend/compute_threads.h"
#include "backend/launch_counters.h"
#include "backend/result_placement.h"
#include "base/settings.h"
#include "ops/launch/launch.h"
#include "ops/launch/plan_cache.h"
#include "ops/launch/repeated_warnings.h"
#include "ops/wire/stand_in.h"

namespace openreg::ops {

// Note [Probes]
//
// CPU kernels detect dtypes that they do not take ("bitwise_and_cpu" not implemented for 'Float')
// only when they run. On the device they run after the call, so this would be an error of the
// stream; a GPU's kernels are chosen on the host, so there it is an error of the call. To make it
// an error of the call here too, the kernel is tried on the calling thread, on tensors of zeros.
// This happens for the first call with new dtypes, numbers of dimensions, flags or strings; if the
// meta function does not check them, also with new integers and a new pattern of equal sizes. The
// tensors are small, which costs next to nothing; if the kernel does not take such shapes, they
// have full size. Inputs that would then take much memory are read where they lie, once the stream
// is idle: a probe takes no more memory than the call's outputs and kMostWholeBytes, and if the
// device has no room for an output, the call is out of memory. Zeros are indices in range, so
// errors that depend on data remain errors of the stream; integers that must not be zero (divisors,
// pivots) are then tried as ones. An error that something is not implemented does not depend on the
// elements, and is raised at once. Any other failure proves nothing (zeros are a singular matrix),
// so the call then waits for the real command. It also waits if written memory overlaps, because
// kernels may refuse that. Numbers among the arguments are tried as they are; numbers of which only
// the kind matters (number.h) stand for all of their kind.
//
// The call reports the warnings of a probe that passes; a second probe shows which of them recur.
namespace {

using Attempt = c10::function_ref<bool(std::span<const std::byte>)>;

/// The maximum for stand-ins of a call's inputs.
constexpr std::size_t kMostWholeBytes = std::size_t{64} << 20;

StandIn::Kind kind_of_stand_in(const ArgumentWriter& arguments, bool shrunk) {
  if (shrunk) return StandIn::Kind::kShrunk;
  // The tensors of a smaller call have no elements to read. The stand-ins of its inputs take little
  // memory, however large they are: pages of zeros that are only read are one and the same page.
  if (arguments.device().is_cpu()) return StandIn::Kind::kWhole;
  return arguments.bytes_touched() > kMostWholeBytes ? StandIn::Kind::kReading
                                                     : StandIn::Kind::kWhole;
}

void count_probe(std::chrono::steady_clock::time_point begin, std::size_t bytes) {
  const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - begin;
  backend::counters::probes.add();
  backend::counters::probe_ns.add(static_cast<std::uint64_t>(time.count()));
  backend::counters::probe_bytes.add(bytes);
}

bool try_on(std::span<const std::byte> command, c10::Device device, StandIn::Kind kind,
            Elements elements, Attempt attempt, std::vector<c10::Warning>& warnings,
            std::exception_ptr& refusal) {
  const CollectedWarnings collected;
  const backend::CleanState clean;  // as the command has, so that modes and profilers see nothing
  const auto begin = std::chrono::steady_clock::now();
  std::size_t bytes = 0;
  bool passes = false;
  try {
    const StandIn stand_in(command, kind, elements);
    bytes = stand_in.bytes();
    const backend::DeviceMemoryLimit room(device);
    passes = attempt(stand_in.command());
  } catch (const c10::OutOfMemoryError&) {  // of the device, which the call needs, too
    throw;
  } catch (const c10::NotImplementedError&) {
    refusal = std::current_exception();
  } catch (const std::exception&) {  // the kernel refuses, perhaps because of the elements
  }
  warnings = collected.get();
  count_probe(begin, bytes);
  // Autograd's thread launches and does not wait: a team that it made once for the probe would
  // persist, and slow down the teams of the threads that compute (docs/architecture.md, "Streams").
  // A probe with one thread would not be valid, because kernels choose algorithms, and layouts of
  // results, by the number of threads.
  if (torch::autograd::get_current_graph_task_id() != -1) backend::release_team();
  return passes;
}

bool has_integers(std::span<const std::byte> command) {
  const CommandView view(command);
  return std::ranges::any_of(view.tensors(), [&view](const TensorRecord& tensor) {
    const auto& shape = view.shape(tensor);
    return !(shape.flags & kPayload) && c10::isIntegralType(shape.type(), /*includeBool=*/false);
  });
}

}  // namespace

ProbeResult probe(ArgumentWriter& arguments, bool shrunk, Attempt attempt) {
  const auto command = arguments.finish();
  const auto kind = kind_of_stand_in(arguments, shrunk);
  if (kind == StandIn::Kind::kReading) wait_for_device(arguments.device(), arguments.op());
  auto elements = Elements::kZeros;
  std::vector<c10::Warning> warnings;
  std::exception_ptr refusal;
  if (!try_on(command, arguments.device(), kind, elements, attempt, warnings, refusal)) {
    if (refusal) return {.refusal = refusal};
    elements = Elements::kOnes;
    if (!has_integers(command) ||
        !try_on(command, arguments.device(), kind, elements, attempt, warnings, refusal))
      return {.refusal = refusal};
  }
  ProbeResult result{.passes = true, .warned = !warnings.empty()};
  if (result.warned) {
    std::vector<c10::Warning> again;
    try_on(command, arguments.device(), kind, elements, attempt, again, refusal);
    result.warnings = report_once_only(warnings, again);
  }
  return result;
}

ProbeResult probe_kernel(const OpKernel& kernel, ArgumentWriter& arguments, SignatureLevel level,
                         bool shrunk) {
  c10::SmallVector<std::uint64_t, 64> words;
  // Not the kernel's own address, which is used for the signatures of calls.
  const auto alike = arguments.signature(reinterpret_cast<const char*>(&kernel) + 1, level, words);
  if (const auto known = PlanCache::find(alike)) {
    return {.passes = !known->waits, .warned = known->drops_warnings, .warnings = known->warnings};
  }
  const auto runs = [&](std::span<const std::byte> stand_in) {
    kernel.run(stand_in);
    return true;
  };
  auto result = shrunk ? probe(arguments, /*shrunk=*/true, runs) : ProbeResult();
  // Without computing, what is too large to be tried is taken for accepted.
  if (!result.passes && !result.refusal && !computes() && arguments.bytes_touched() > kMostTried)
    return {.passes = true};
  if (!result.passes) result = probe(arguments, /*shrunk=*/false, runs);
  // What is not implemented is so for all elements: it can be raised without a wait.
  if (result.refusal) std::rethrow_exception(result.refusal);
  if (result.passes) {
    PlanCache::insert(alike, {.drops_warnings = result.warned, .warnings = result.warnings});
  }
  return result;
}

}  // namespace openreg::ops
