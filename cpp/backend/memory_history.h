#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <cstddef>
#include <string>
#include <vector>

#include "memory/heap.h"

namespace openreg::backend {

/// The arguments of torch.openreg.memory._record_memory_history; its docstring explains each of
/// them.
struct HistoryRequest {
  bool enabled = false;
  bool trace = false;  ///< keep a history, not only the stacks of held blocks
  c10::CachingDeviceAllocator::RecordContext context =
      c10::CachingDeviceAllocator::RecordContext::NEVER;
  bool cpp_stacks = false;
  std::size_t max_entries = 0;
  bool clear = false;
  std::vector<std::string> skip_actions;  ///< of memory::kActionNames
};

/// Starts, changes or ends the recording on all devices; ending it clears the history. Throws
/// c10::Error for an unknown action.
void record_memory_history(const HistoryRequest& request);

/// The stack of the calling thread, a torch::CapturedTraceback, if the history records it for an
/// allocation or for a free; else nullptr. Takes the GIL: must not be called under a lock.
memory::Context context_of_allocation();
memory::Context context_of_free();

/// The calling thread's innermost 12 Python frames as text, innermost first, one per line. Takes
/// the GIL: must not be called under a lock.
std::string python_stack();

/// Memory may be freed while a Python exception is pending. Reading a stack runs Python code, which
/// would lose the exception: `wrapper` calls `read` and preserves it (bindings).
using ReadStack = std::string (*)();
void install_python_stack_wrapper(std::string (*wrapper)(ReadStack read));

}  // namespace openreg::backend
