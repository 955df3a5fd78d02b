#include "bindings/bindings.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <chrono>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "backend/device.h"
#include "base/settings.h"
#include "runtime/process.h"

namespace openreg::bindings {

// Note [Autograd threads at exit]
// PyTorch runs the backward pass of each device on a separate thread. That thread first signals the
// caller that backward has completed, and only then releases the task, and with it Python objects:
// at least the context variables that backward() has stored for its hooks. A program that ends
// right after backward() finalises the interpreter at the same time, and before Python 3.14 a
// thread that requests the GIL of a finalised interpreter is unwound. Here that happens in
// destructors, which are noexcept: "terminate called without an active exception". A thread that
// has just started requests the GIL too, even if its device has no work.
//
// A thread that takes a task has released the previous one. So each thread is given an empty task,
// which is known to contain no Python objects.

namespace {

namespace autograd = torch::autograd;

// The engine's destructor waits just as long for the same threads.
constexpr std::chrono::seconds kIdleTimeout{10};

// There is no public way to find out whether the threads exist, but subclasses of the engine can.
class EngineAccess : public autograd::Engine {
 public:
  static bool has_device_threads(const autograd::Engine& engine) {
    return !(engine.*(&EngineAccess::device_ready_queues_)).empty();
  }
};

// A node that does nothing, on the thread of one device. The engine chooses the thread (and a
// stream, which stays unused) by the first declared input that is not on the CPU; the actual input
// is the other one, so that no device memory is needed.
class Visit : public autograd::Node {
 public:
  // The lowest sequence number is the lowest priority: the queued rest of a failed backward pass
  // runs first.
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
  // A failed or nested backward pass can move from one thread to another, once: a thread that has
  // been visited may then receive it from one that has not. Hence two rounds.
  for (int round = 0; round < 2; ++round) {
    for (int index = 0; index < device_count(); ++index) {
      auto visit = c10::make_intrusive<Visit>(input, static_cast<c10::DeviceIndex>(index));
      engine.execute({autograd::Edge(std::move(visit), 0)}, {input}, /*keep_graph=*/false,
                     /*create_graph=*/false, /*accumulate_grad=*/true);
    }
  }
}

}  // namespace

void wait_for_autograd_threads() noexcept {
  try {
    // In a forked child this makes a new engine. The parent's has no threads here, and its
    // destructor would wait for them in vain.
    auto& engine = autograd::Engine::get_default_engine();
    if (!EngineAccess::has_device_threads(engine) || in_bad_fork()) return;
    // On a separate thread: a task carries the Python state of its thread (modes, hooks), and the
    // wait must end even if a user's hook never ends.
    std::packaged_task<void()> visit([&engine] { visit_device_threads(engine); });
    const auto done = visit.get_future();
    std::thread(std::move(visit)).detach();
    done.wait_for(kIdleTimeout);
  } catch (const std::exception&) {
    // For example, no thread is available. The process ends as it would without this function.
    return;
  }
}

}  // namespace openreg::bindings
