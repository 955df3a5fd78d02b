#include "ops/trial.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <array>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_set>

#include "backend/compute_threads.h"
#include "backend/denormals.h"
#include "ops/arguments.h"
#include "ops/cpu_alias.h"

namespace openreg::ops {

// Note [Trial]
//
// CPU kernels find out about dtypes they do not take ("bitwise_and_cpu" not implemented for
// 'Float') when they run. On the device that is after the call, and would be an error of the
// stream; a GPU's kernels are chosen on the host, so there it is an error of the call. To be that
// here too, the first call with new dtypes, dimensions, flags or strings tries the kernel on the
// calling thread, on tensors of zeros: small ones, which costs next to nothing, and where a kernel
// does not take such shapes, in full size. Zeros are indices in range, so errors that
// depend on data stay errors of the stream. A trial that fails proves nothing (zeros are a singular
// matrix): then the call waits for the real command.
namespace {

class SilentWarnings : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
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

enum class Outcome : std::uint8_t { kPasses, kFails, kDividesByZero };

Outcome try_on(std::span<const std::byte> command, bool shrunk, unsigned char fill,
               c10::function_ref<bool(std::span<const std::byte>)> attempt) {
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard warnings(&silent);
  const BelowAutograd below_autograd;
  const bool flushes_denormals = backend::flush_denormals();
  auto outcome = Outcome::kFails;
  try {
    const CommandOnHost stand_in(command, shrunk, fill);
    if (attempt(stand_in.command())) outcome = Outcome::kPasses;
  } catch (const std::exception& error) {
    if (std::string_view(error.what()).find("ZeroDivisionError") != std::string_view::npos)
      outcome = Outcome::kDividesByZero;
  }
  backend::set_flush_denormals(flushes_denormals);
  // Autograd's thread launches, and does not wait: a team of its own would stay for this one time,
  // and slow down that of the threads that compute (docs/architecture.md, "Streams"). One thread
  // for the trial would not do: kernels choose algorithms, and layouts of results, by the number.
  if (torch::autograd::get_current_graph_task_id() != -1) backend::release_team();
  return outcome;
}

}  // namespace

bool passes_on_zeros(std::span<const std::byte> command, bool shrunk,
                     c10::function_ref<bool(std::span<const std::byte>)> attempt) {
  constexpr unsigned char kPositive = 1;  // numbers whose bytes are all 1
  const auto outcome = try_on(command, shrunk, /*fill=*/0, attempt);
  if (outcome != Outcome::kDividesByZero) return outcome == Outcome::kPasses;
  return try_on(command, shrunk, kPositive, attempt) == Outcome::kPasses;
}

bool takes_arguments(const Kernel& kernel, std::uint64_t signature,
                     std::span<const std::byte> command) {
  const auto key = kernel.id() ^ signature;
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
    kernel.run()(zeros);
    return true;
  };
  if (!passes_on_zeros(command, /*shrunk=*/true, runs) &&
      !passes_on_zeros(command, /*shrunk=*/false, runs)) {
    return false;
  }
  const std::unique_lock lock(all.mutex);
  all.signatures.insert(key);
  return true;
}

}  // namespace openreg::ops
