#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/fault_table.h"
#include "runtime/stream.h"

namespace openreg::backend {

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
  void corrupt(void* memory, std::size_t bytes) noexcept;

  std::optional<std::uint64_t> corrupts_;  // a random number
};

}  // namespace openreg::backend
