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
/// c10::Error for an unknown action. Does nothing between begin_allocation_log() and
/// end_allocation_log().
void record_memory_history(const HistoryRequest& request);

/// The history becomes a log of all allocations, frees and segments on all devices, whose contexts
/// are AllocationLabels; what it had is discarded.
void begin_allocation_log();
/// Discards the log, and records again what the last record_memory_history() requested.
void end_allocation_log();
bool is_allocation_log() noexcept;

/// The stack of the calling thread, a torch::CapturedTraceback, if the history records it for an
/// allocation or for a free; else nullptr. Of an allocation log: its AllocationLabel, of
/// allocations only. Takes the GIL: must not be called under a lock.
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
