#include "bindings/autograd_threads.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <chrono>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "backend/device.h"
#include "runtime/process.h"
#include "runtime/settings.h"

namespace openreg::bindings {

// Note [Autograd threads at exit]
// PyTorch runs the backward of each device on a thread of its own. That thread tells the caller
// that backward is done, and only then lets go of the task, and with it of Python objects: the
// context variables that backward() has stored for its hooks, at least. A program that ends right
// after backward() finalises the interpreter meanwhile, and before Python 3.14 a thread that asks
// for the GIL of a finalised interpreter is unwound; here through destructors, which are noexcept:
// "terminate called without an active exception". A thread that has just been started asks for the
// GIL too, also that of a device without work.
//
// A thread that takes up a task has let go of the one before. So each is given an empty one, of
// which it is known that nothing of Python's is in it.

namespace {

namespace autograd = torch::autograd;

// The engine's destructor waits as long for the same threads.
constexpr std::chrono::seconds kPatience{10};

// There is no public way to ask whether the threads exist; the engine's subclasses may.
class EngineAccess : public autograd::Engine {
 public:
  static bool has_device_threads(const autograd::Engine& engine) {
    return !(engine.*(&EngineAccess::device_ready_queues_)).empty();
  }
};

// A node that does nothing, on the thread of one device. The engine takes the thread (and a stream,
// which stays unused) from the inputs that are declared, the first that is not on the CPU; the
// input that arrives is the other one, so that no memory of the device is needed.
class Visit : public autograd::Node {
 public:
  // The lowest sequence number is the lowest priority: what is left of a backward that failed, and
  // is still queued, comes first.
  Visit(const at::Tensor& input, c10::DeviceIndex index) : Node(/*sequence_nr=*/0) {
    add_input_metadata(input);
    add_input_metadata(input.options().device(backend::kDeviceType, index), input.sym_sizes(),
                       /*is_tensor_subclass=*/false, /*is_nested=*/false,
                       /*grad_dtype=*/std::nullopt);
  }

  autograd::variable_list apply(autograd::variable_list&&) override { return {}; }
};

void visit_device_threads(autograd::Engine& engine) {
  const auto input = at::empty({0});
  // A failed or nested backward can pass from one thread to another, once: a thread that was
  // visited may have got it from one that was not yet. Hence twice.
  for (int round = 0; round < 2; ++round) {
    for (int index = 0; index < device_count(); ++index) {
      auto visit = c10::make_intrusive<Visit>(input, static_cast<c10::DeviceIndex>(index));
      engine.execute({autograd::Edge(std::move(visit), 0)}, {input}, /*keep_graph=*/false,
                     /*create_graph=*/false, /*accumulate_grad=*/true);
    }
  }
}

}  // namespace

void settle_autograd_threads() noexcept {
  try {
    // In a forked child this gives a new engine. With the parent's, of which the threads are
    // missing, the engine's destructor would wait for them in vain.
    auto& engine = autograd::Engine::get_default_engine();
    if (!EngineAccess::has_device_threads(engine) || in_bad_fork()) return;
    // On a thread of its own: a task takes with it what its thread holds of Python's (modes,
    // hooks), and the wait must end also where a hook of the user's never does.
    std::packaged_task<void()> visit([&engine] { visit_device_threads(engine); });
    const auto done = visit.get_future();
    std::thread(std::move(visit)).detach();
    done.wait_for(kPatience);
  } catch (const std::exception&) {
    // No thread to be had, for example. The process ends as it would without this function.
    return;
  }
}

}  // namespace openreg::bindings
