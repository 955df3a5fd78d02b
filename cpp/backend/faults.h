#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/command.h"
#include "memory/memory_use.h"
#include "runtime/fault_table.h"
#include "runtime/faulty_command.h"
#include "runtime/graph.h"
#include "runtime/stream.h"

namespace openreg::backend {

/// Counts a command, and calls `enqueue` with it, or with one that has a fault. `used` is what the
/// command uses. Throws what `enqueue` throws, and DeviceError if the device is lost now.
void enqueue_with_faults(
    openreg::Stream& stream, const Kernel& kernel, std::span<const std::byte> arguments,
    std::span<const memory::MemoryUse> used,
    const std::function<void(const Kernel&, std::span<const std::byte>)>& enqueue);

/// Counts the nodes of a run of a graph on `stream`, and returns their faults. A command that hangs
/// does so before the run. Throws DeviceError if the device is lost now.
NodeFaults faults_of_run(openreg::Stream& stream, const Graph& graph);

/// What goes wrong with a collective.
struct CollectiveFault {
  std::string error;                  ///< it fails at once; empty: it does not
  std::shared_ptr<ArmedFault> hangs;  ///< it ends when this fault is disarmed; null: as usual
};

/// Counts a collective that begins on `stream` next. If it is late, what delays it is enqueued on
/// the stream. Throws DeviceError if the device is lost now, and ends the process if that is the
/// fault.
CollectiveFault fault_of_collective(openreg::Stream& stream, const char* name, int rank);

/// Makes a device usable that has failed or is lost, as torch.openreg.reset_device does. Its
/// tensors keep their memory; unless `keep_memory`, each byte of it is 255. Returns the errors that
/// no call has raised. Throws as drain_device() does.
std::vector<std::string> reset_device(int device, bool keep_memory);

/// A copy that the calling thread makes.
class HostCopy {
 public:
  /// Counts the copy, and waits if it is slow. Throws c10::AcceleratorError if it fails.
  HostCopy(openreg::Stream& stream, const char* name) {
    if (faults::any()) begin(stream, name);
  }
  /// The copy has written this memory, which this process can access.
  void end(void* memory, std::size_t bytes) noexcept {
    if (corrupts_) corrupt(memory, bytes);
  }

 private:
  void begin(openreg::Stream& stream, const char* name);
  void begin_counted(openreg::Stream& stream, const char* name);
  void corrupt(void* memory, std::size_t bytes) noexcept;

  std::optional<std::uint64_t> corrupts_;  // a random number
};

}  // namespace openreg::backend
