#include "backend/clean_state.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/PythonDispatcherTLS.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/graph_task.h>

#include <optional>
#include <utility>

#include "backend/compute_threads.h"
#include "backend/exception.h"
#include "backend/kernel_warnings.h"
#include "backend/thread_count_tuner.h"
#include "backend/thread_current.h"
#include "base/error.h"
#include "base/processor.h"
#include "base/usable_cores.h"
#include "runtime/callbacks.h"

namespace openreg::backend {

// Note [Clean state]
// A waiting host runs commands on a thread of the program, under whatever the program has entered
// there: autocast, a FakeTensorMode, vmap, the profiler. A command has passed through all of that
// when it was launched. It must now compute what an engine would compute, so the host's
// thread-local state is set aside during its run slice.
//
// at::ThreadLocalState does the same for tasks that inherit a state. It copies everything, on entry
// and on exit. This one is entered each time a waiting host takes a stream over, so it checks
// first, moves what it can, and leaves what only takes effect with a dispatch key that is excluded
// here: autocast's dtypes and cache, saved-tensor hooks, functionalization's and the tracer's
// settings.

namespace {

// Below autograd and autocast, and without the keys that modes have included: the state in which an
// engine thread starts, and in which operators call CPU kernels.
const c10::impl::LocalDispatchKeySet& clean_keys() {
  static const auto keys = [] {
    c10::impl::PODLocalDispatchKeySet pod{};
    pod.set_included(c10::default_included_set);
    pod.set_excluded(c10::default_excluded_set | c10::autocast_dispatch_keyset |
                     c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    return c10::impl::LocalDispatchKeySet(pod);
  }();
  return keys;
}

struct SliceState {
  CleanState clean;
  std::optional<ComputingEngineScope> engine;
  std::optional<c10::WarningUtils::WarningHandlerGuard> warnings;
  std::optional<OneThreadScope> alone;
};

}  // namespace

// Bits of AutogradState. It cannot be copied as a whole: it may hold a Python object, whose
// reference count needs the GIL.
struct AutogradBits {
  bool grad_mode;
  bool forward_grad_mode;
  bool inference_mode;

  static AutogradBits exchange(AutogradBits bits) {
    auto& state = c10::AutogradState::get_tls_state();
    const AutogradBits previous{state.get_grad_mode(), state.get_fw_grad_mode(),
                                state.get_inference_mode()};
    state.set_grad_mode(bits.grad_mode);
    state.set_fw_grad_mode(bits.forward_grad_mode);
    state.set_inference_mode(bits.inference_mode);
    return previous;
  }
};

struct CleanState::Saved {
  Saved()
      : keys(c10::impl::tls_local_dispatch_key_set()),
        autograd(AutogradBits::exchange(
            {.grad_mode = false, .forward_grad_mode = false, .inference_mode = false})),
        functorch(std::move(at::functorch::functorchTLSAccessor())),
        python_dispatcher(c10::impl::PythonDispatcherTLS::get_state()),
        debug_info(c10::ThreadLocalDebugInfo::current()),
        device(std::exchange(thread_current().device, 0)),
        flushes_denormals(flush_denormals()) {
    if (thread_current().has_streams) streams = std::exchange(thread_current(), {});
    if (c10::impl::TorchDispatchModeTLS::any_modes_set()) {
      dispatch_modes = c10::impl::TorchDispatchModeTLS::get_state();
      c10::impl::TorchDispatchModeTLS::set_state({});
    }
    if (at::impl::PythonTorchFunctionTLS::stack_len() > 0 ||
        at::impl::PythonTorchFunctionTLS::get_disabled_state() !=
            at::impl::TorchFunctionDisabledState::ENABLED) {
      function_modes = at::impl::PythonTorchFunctionTLS::get_state();
      at::impl::PythonTorchFunctionTLS::set_state({});
    }
    if (python_dispatcher != nullptr) c10::impl::PythonDispatcherTLS::reset_state();
    if (debug_info != nullptr) c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr);
    if (at::hasCallbacks() && at::isRecordFunctionEnabled()) {
      record_function = true;
      at::enableRecordFunction(false);
    }
    // Last, here and below, because the functions above include and exclude keys.
    c10::impl::_force_tls_local_dispatch_key_set(clean_keys());
  }

  ~Saved() {
    set_flush_denormals(flushes_denormals);
    if (record_function) at::enableRecordFunction(true);
    if (debug_info != nullptr)
      c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(std::move(debug_info));
    if (python_dispatcher != nullptr) c10::impl::PythonDispatcherTLS::set_state(python_dispatcher);
    if (function_modes) at::impl::PythonTorchFunctionTLS::set_state(*function_modes);
    if (dispatch_modes) c10::impl::TorchDispatchModeTLS::set_state(std::move(*dispatch_modes));
    at::functorch::functorchTLSAccessor() = std::move(functorch);
    AutogradBits::exchange(autograd);
    if (streams || thread_current().has_streams)
      thread_current() = streams.value_or(ThreadCurrent{});
    thread_current().device = device;
    c10::impl::_force_tls_local_dispatch_key_set(keys);
  }

  Saved(const Saved&) = delete;
  Saved& operator=(const Saved&) = delete;

  c10::impl::LocalDispatchKeySet keys;
  AutogradBits autograd;
  std::unique_ptr<at::functorch::FuncTorchTLSBase> functorch;
  c10::impl::PyInterpreter* python_dispatcher;
  std::shared_ptr<c10::ThreadLocalDebugInfo> debug_info;
  c10::DeviceIndex device;
  bool flushes_denormals;  // each command sets that of its launcher
  std::optional<ThreadCurrent> streams;
  std::optional<c10::impl::TorchDispatchModeTLS> dispatch_modes;
  std::optional<at::impl::PythonTorchFunctionTLS> function_modes;
  bool record_function = false;
};

CleanState::CleanState() : saved_(std::make_unique<Saved>()) {}

CleanState::~CleanState() = default;

void install_clean_state() {
  freeze_thread_count();  // of the thread that imports torch, before another one changes it
  Callbacks callbacks;
  set_exception_message(&message_of);
  callbacks.enter_commands = [](const Callbacks::RunSliceStart& start) -> void* {
    auto slice = std::make_unique<SliceState>();
    if (start.engine) {
      use_one_thread();
      slice->engine.emplace();
    } else {
      thread_local ThreadCountTuner tuner;
      if (!tuner.takes_team(start.left, start.before, at::get_num_threads(), usable_cores()))
        slice->alone.emplace();
    }
    if (start.engine || KernelWarnings::has_no_handler())
      slice->warnings.emplace(&KernelWarnings::engine_handler());
    return slice.release();
  };
  callbacks.leave_commands = [](void* slice) noexcept { delete static_cast<SliceState*>(slice); };
  callbacks.begin_compute = &begin_compute;
  callbacks.end_compute = &end_compute;
  // Autograd's thread would have a team beside that of the program's thread, and each parallel
  // region would have to wake its own team's threads.
  callbacks.runs_when_full = [] { return torch::autograd::get_current_graph_task_id() == -1; };
  install_callbacks(callbacks);
}

}  // namespace openreg::backend
