#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fault_spec.h"
#include "base/schedule.h"

namespace openreg {

/// The maximum of TORCH_OPENREG_DEVICES.
inline constexpr std::size_t kMaxDevices = 64;

/// What happens if two accesses to the same memory are unsynchronized (memory/race_detector.h).
enum class RaceDetectionMode : std::uint8_t { kOff, kWarn, kError };

/// Every environment variable that the library reads (docs/settings.md lists them). The defaults
/// are those of settings.cpp.
struct Settings {
  /// TORCH_OPENREG_DEVICES: number of devices, 1 to 64.
  int devices = 0;
  /// TORCH_OPENREG_MEMORY: bytes per device, as "8GiB", "512MiB", "1073741824", or "50%" of the
  /// default. Unset: default_device_memory() of host_memory.h.
  std::optional<std::size_t> memory;
  /// TORCH_OPENREG_ENGINES: threads that run commands (there is another one for long copies), 1 to
  /// 1024. Default: the cores that the process may use less one, at least one.
  int engines = 0;
  /// TORCH_OPENREG_LAUNCH_BLOCKING: 0 or 1. Each launch waits for its command and raises its error.
  bool launch_blocking = false;
  /// TORCH_OPENREG_FAULT_MESSAGE: 0 or 1. Prints a line to stderr if the host touches device
  /// memory.
  bool fault_message = false;
  /// TORCH_OPENREG_DEBUG_MEMORY: 0 or 1. Finds errors in the use of device memory
  /// (memory/debugger.h).
  bool debug_memory = false;
  /// TORCH_OPENREG_DETECT_RACES: 0, "warn", or 1 ("error"). Finds accesses to the same memory that
  /// nothing orders.
  RaceDetectionMode detect_races = RaceDetectionMode::kOff;
  /// TORCH_OPENREG_CPU_FALLBACK: 0 or 1. Operators outside aten that have a kernel for the CPU and
  /// none for openreg run the CPU's.
  bool cpu_fallback = false;
  /// TORCH_OPENREG_STACKS: 0 or 1. Errors of commands name the Python line that launched the
  /// command.
  bool stacks = false;
  /// TORCH_OPENREG_TRACE_RECORDS: maximum number of records of the device that a profiler keeps, 1
  /// to 2^30, of about 100 bytes each.
  int trace_records = 0;
  /// TORCH_OPENREG_SCHEDULE: "earliest", "latest" or "random:SEED" (schedule.h).
  Schedule schedule;
  /// TORCH_OPENREG_FAULTS: faults to inject, as FaultSpec::parse_list() accepts them.
  std::vector<FaultSpec> faults;
  /// TORCH_OPENREG_STICKY_ERRORS: 0 or 1. After an error of a command, each later call on the
  /// device raises it (device_health.h).
  bool sticky_errors = false;
  /// TORCH_OPENREG_EXECUTOR: "thread" or "process". Each device's kernels run in a process of
  /// their own (executor.h).
  bool executor_process = false;
  /// TORCH_OPENREG_FAKE_WORLD: ranks of torch.distributed of which only this process exists, 1 to
  /// 65536; 0 if it is not set. Read in Python (fake_world.py).
  int fake_world = 0;
  /// TORCH_OPENREG_COMPUTE: 0 or 1. 0: commands are launched, ordered and counted, but kernels run
  /// only on small tensors, and device memory is reserved, not used (memory/value_tracker.h).
  bool compute = true;
};

/// The settings, read from the environment at the first call that succeeds. Thread safe. Throws
/// Error with the variable, its value and what is allowed; the next call then reads them again.
const Settings& settings();

/// Whether the devices compute: what choose_computing() has chosen, or TORCH_OPENREG_COMPUTE.
/// Throws as settings() does.
bool computes();
/// Chooses for this process. Nothing may have used the devices' memory. Throws Error, and chooses
/// nothing, if another setting excludes it.
void choose_computing(bool computes);

/// What a launcher such as torchrun says of this process.
struct LaunchedProcess {
  std::optional<int> rank;  ///< RANK
  int restart = 0;  ///< TORCHELASTIC_RESTART_COUNT: 0 in the first run, or without a launcher
};

/// Reads the current environment. A malformed variable counts as one that is not set.
LaunchedProcess launched_process();

/// What PyTorch reads from the environment about CUDA's libraries, as far as the memory that they
/// use depends on it. A malformed variable counts as one that is not set.
struct CudaLibrarySettings {
  std::optional<std::size_t> blas_workspace{};    ///< bytes: CUBLAS_WORKSPACE_CONFIG
  std::optional<std::size_t> blaslt_workspace{};  ///< bytes: CUBLASLT_WORKSPACE_SIZE
  bool unified_blas_workspace = true;             ///< TORCH_CUBLASLT_UNIFIED_WORKSPACE
  bool cudnn_attention_last = false;              ///< TORCH_CUDNN_SDPA_DEPRIORITIZED
};
/// Read at the first call. Thread safe.
const CudaLibrarySettings& cuda_library_settings();

/// Number of devices, or 0 if the settings are malformed: for callers that must not throw. The
/// first time it returns 0 it explains that in a line on stderr.
int device_count() noexcept;

/// The name of each setting's variable, and its value or default as text; empty if there is none,
/// or if it depends on the machine.
std::vector<std::pair<std::string, std::string>> setting_texts();

/// One sentence for each environment variable that has the prefix of the settings but is not one.
std::vector<std::string> unknown_settings();

/// Parses settings from the current environment, without caching. For tests and for settings().
Settings read_settings();

}  // namespace openreg
