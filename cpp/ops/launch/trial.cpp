#include "ops/launch/trial.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <shared_mutex>
#include <unordered_set>
#include <vector>

#include "backend/compute_threads.h"
#include "backend/denormals.h"
#include "ops/tensors/cpu_alias.h"

namespace openreg::ops {

// Note [Trial]
//
// CPU kernels find out about dtypes they do not take ("bitwise_and_cpu" not implemented for
// 'Float') when they run. On the device that is after the call, and would be an error of the
// stream; a GPU's kernels are chosen on the host, so there it is an error of the call. To be that
// here too, the first call with new dtypes, dimensions, flags or strings, and where meta functions
// do not see to them with new sizes that are equal, tries the kernel on the calling thread, on
// tensors of zeros: small ones, which costs next to nothing, and where a kernel does not take such
// shapes, in full size. Zeros are indices in range, so errors that depend on data stay errors of
// the stream; integers that may not be zero (divisors, pivots) are tried as ones after that. A
// trial that fails proves nothing (zeros are a singular matrix): then the call waits for the real
// command, as it does where written memory overlaps, which kernels may refuse. Warnings of a trial
// that passes are those of the call: ATen gives many of them once in a process.
namespace {

class Collected : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { warnings.push_back(warning); }

  std::vector<c10::Warning> warnings;
};

/// The signatures that have passed, of all kernels. Leaked: launches may come during static
/// destruction.
struct Passed {
  std::shared_mutex mutex;
  std::unordered_set<std::uint64_t> signatures;
};
Passed& passed() {
  static auto* passed = new Passed;
  return *passed;
}

bool try_on(std::span<const std::byte> command, bool shrunk, bool ones,
            c10::function_ref<bool(std::span<const std::byte>)> attempt, Collected& collected) {
  const c10::WarningUtils::WarningHandlerGuard warnings(&collected);
  const BelowAutograd below_autograd;
  const bool flushes_denormals = backend::flush_denormals();
  bool passes = false;
  try {
    const CommandOnHost stand_in(command, shrunk, ones);
    passes = attempt(stand_in.command());
  } catch (const std::exception&) {  // that is the answer
    passes = false;
  }
  backend::set_flush_denormals(flushes_denormals);
  // Autograd's thread launches, and does not wait: a team of its own would stay for this one time,
  // and slow down that of the threads that compute (docs/architecture.md, "Streams"). One thread
  // for the trial would not do: kernels choose algorithms, and layouts of results, by the number.
  if (torch::autograd::get_current_graph_task_id() != -1) backend::release_team();
  return passes;
}

}  // namespace

bool passes_on_zeros(ArgumentWriter& arguments, bool shrunk,
                     c10::function_ref<bool(std::span<const std::byte>)> attempt) {
  const auto command = arguments.command();
  Collected collected;
  if (!try_on(command, shrunk, /*ones=*/false, attempt, collected)) {
    collected.warnings.clear();
    const auto tensors = tensors_of_command(command);
    const bool integers = std::any_of(tensors.begin(), tensors.end(), [](const TensorView& tensor) {
      return c10::isIntegralType(tensor.dtype, /*includeBool=*/false);
    });
    if (!integers || !try_on(command, shrunk, /*ones=*/true, attempt, collected)) return false;
  }
  if (!collected.warnings.empty()) arguments.drop_warnings();
  for (const auto& warning : collected.warnings) c10::warn(warning);
  return true;
}

bool takes_arguments(const Kernel& kernel, ArgumentWriter& arguments) {
  const auto key = kernel.id() ^ arguments.signature();
  // Without a lock, for the many launches after the first.
  constexpr std::size_t kSlots = 1024;
  thread_local std::array<std::uint64_t, kSlots> seen{};
  auto& slot = seen[key % kSlots];
  if (slot == key) return true;
  auto& all = passed();
  {
    const std::shared_lock lock(all.mutex);
    if (all.signatures.count(key) != 0) {
      slot = key;
      return true;
    }
  }
  const auto runs = [&](std::span<const std::byte> zeros) {
    kernel.run(zeros);
    return true;
  };
  if (!passes_on_zeros(arguments, /*shrunk=*/true, runs) &&
      !passes_on_zeros(arguments, /*shrunk=*/false, runs)) {
    return false;
  }
  const std::unique_lock lock(all.mutex);
  all.signatures.insert(key);
  return true;
}

}  // namespace openreg::ops
