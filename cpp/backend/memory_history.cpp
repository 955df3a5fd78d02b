#include "backend/memory_history.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "backend/allocation_label.h"
#include "base/settings.h"
#include "memory/device_heap.h"
#include "memory/history.h"

namespace openreg::backend {

namespace {

using c10::CachingDeviceAllocator::RecordContext;

std::atomic<bool> of_allocations{false};
std::atomic<bool> of_frees{false};
std::atomic<bool> with_cpp{false};
std::atomic<bool> is_log{false};

// Guarded by the GIL: only Python starts and ends recordings.
HistoryRequest last_request;  // NOLINT(cert-err58-cpp): an empty one throws nothing

std::atomic<std::string (*)(ReadStack)> python_stack_wrapper{nullptr};

memory::Context gather() {
  if (is_log.load(std::memory_order_relaxed)) return allocation_label();
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, with_cpp);
}

std::string read_python_stack() {
  constexpr std::size_t kFrames = 12;
  const auto traceback = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false,
                                                          /*cpp=*/false);
  const auto symbols = torch::symbolize({traceback.get()});
  std::string text;
  const auto& frames = symbols.tracebacks.at(0);
  for (std::size_t i = 0; i < std::min(frames.size(), kFrames); ++i) {
    const auto& frame = symbols.all_frames.at(frames[i]);
    if (!text.empty()) text += "\n";
    text += frame.filename + ":" + std::to_string(frame.lineno) + " in " + frame.funcname;
  }
  return text.empty() ? "(no Python frame: an autograd thread, or C++)" : text;
}

std::uint32_t bit_of(const std::string& action) {
  const auto& names = memory::kActionNames;
  const auto found = std::ranges::find(names, action);
  TORCH_CHECK(found != names.end(), "openreg: unknown action of the memory history (got \"", action,
              "\", expected one of ", c10::Join(", ", names), ")");
  return std::uint32_t{1} << (found - names.begin());
}

void configure(const memory::HistoryOptions& options, bool clear) {
  for (int device = 0; device < openreg::device_count(); ++device) {
    memory::device_heap(device).locked([&](memory::Heap& heap) {
      if (clear) heap.history().clear();
      heap.history().configure(options);
    });
  }
}

}  // namespace

void record_memory_history(const HistoryRequest& request) {
  if (is_log) return;
  memory::HistoryOptions options;
  if (request.enabled) {
    options.enabled = true;
    options.blocks = request.context >= RecordContext::STATE;
    options.allocations = request.context >= RecordContext::ALLOC;
    options.frees = request.context >= RecordContext::ALL;
    options.max_entries = request.trace ? request.max_entries : 0;
    for (const auto& name : request.skip_actions) options.skipped |= bit_of(name);
  }
  configure(options, request.clear || !request.enabled);
  last_request = request;
  with_cpp = request.cpp_stacks;
  of_allocations = options.blocks;
  of_frees = options.frees;
}

void begin_allocation_log() {
  const auto skipped = bit_of("free_completed") | bit_of("snapshot") | bit_of("annotate");
  // Frees, and blocks, have no labels.
  const memory::HistoryOptions options{.enabled = true,
                                       .allocations = true,
                                       .sizes_of_blocks = true,
                                       .max_entries = SIZE_MAX,
                                       .skipped = skipped};
  is_log = true;
  configure(options, /*clear=*/true);
  of_allocations = true;
  of_frees = false;
}

void end_allocation_log() {
  if (!is_log) return;
  // A thread that has gathered a label already may record it, so the history ends first.
  configure({}, /*clear=*/true);
  is_log = false;
  record_memory_history(HistoryRequest(last_request));
}

bool is_allocation_log() noexcept { return is_log.load(std::memory_order_relaxed); }

std::string python_stack() {
  const auto wrapper = python_stack_wrapper.load(std::memory_order_acquire);
  return wrapper ? wrapper(&read_python_stack) : read_python_stack();
}

void install_python_stack_wrapper(std::string (*wrapper)(ReadStack read)) {
  python_stack_wrapper.store(wrapper, std::memory_order_release);
}

memory::Context context_of_allocation() {
  return of_allocations.load(std::memory_order_relaxed) ? gather() : nullptr;
}

memory::Context context_of_free() {
  return of_frees.load(std::memory_order_relaxed) ? gather() : nullptr;
}

}  // namespace openreg::backend
