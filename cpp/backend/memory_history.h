#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "memory/heap.h"

namespace openreg::backend {

/// What torch.openreg.memory._record_memory_history is given; its docstring says what each is.
struct HistoryRequest {
  bool enabled = false;
  bool trace = false;  ///< keep a history, not only the stacks of what is held
  c10::CachingDeviceAllocator::RecordContext context =
      c10::CachingDeviceAllocator::RecordContext::NEVER;
  bool cpp_stacks = false;
  std::size_t max_entries = 0;
  bool clear = false;
  std::vector<std::string> skip_actions;  ///< as PyTorch names them
};

/// Starts, changes or ends the recording on all devices; its end clears the history. Throws
/// c10::Error for an unknown action.
void record_memory_history(const HistoryRequest& request);

/// The stack of the calling thread where history wants it of an allocation or of a free, else
/// nullptr: a torch::CapturedTraceback. Takes the GIL, so it is called under no lock.
memory::Context context_of_allocation();
memory::Context context_of_free();

/// The calling thread's Python frames in words, innermost first, one to a line. Takes the GIL.
std::string python_stack();

/// Reading a stack runs Python, which loses an exception that is on its way while memory is freed.
/// `around` calls `read` and keeps it (bindings).
using ReadStack = std::string (*)();
void install_around_python_stack(std::string (*around)(ReadStack read));

}  // namespace openreg::backend
