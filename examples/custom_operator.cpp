// The operator of custom_operator.py in C++: a schema, a kernel for openreg, one for tensors
// without data, and a derivative. Kernels for openreg have the dispatch key PrivateUse1.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace {

void check(const at::Tensor& x, const at::Tensor& gate) {
  TORCH_CHECK(x.sizes() == gate.sizes(), "gated: the shapes differ (got ", x.sizes(), " and ",
              gate.sizes(), ")");
}

// Runs on the host and returns immediately: each of the two operators below is a command that the
// device runs later, in the order of the current stream. Do not access elements here: they are in
// the device's memory.
at::Tensor gated_on_device(const at::Tensor& x, const at::Tensor& gate) {
  check(x, gate);
  return at::mul(x, at::sigmoid(gate));
}

// The shape and dtype of the result, for torch.compile, torch.export and FakeTensorMode.
at::Tensor gated_without_data(const at::Tensor& x, const at::Tensor& gate) {
  check(x, gate);
  return at::empty_like(x);
}

at::Tensor gated(const at::Tensor& x, const at::Tensor& gate) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("examples_cpp::gated", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  return op.call(x, gate);
}

class Gated : public torch::autograd::Function<Gated> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& gate) {
    context->save_for_backward({x, gate});
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return gated(x, gate);
  }

  // Composed of differentiable operators, so second derivatives exist too.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto open = at::sigmoid(saved[1]);
    return {gradients[0] * open, gradients[0] * x * open * (1 - open)};
  }
};

at::Tensor gated_with_autograd(const at::Tensor& x, const at::Tensor& gate) {
  return Gated::apply(x, gate);
}

}  // namespace

TORCH_LIBRARY(examples_cpp, m) { m.def("gated(Tensor x, Tensor gate) -> Tensor"); }
TORCH_LIBRARY_IMPL(examples_cpp, PrivateUse1, m) { m.impl("gated", TORCH_FN(gated_on_device)); }
TORCH_LIBRARY_IMPL(examples_cpp, Meta, m) { m.impl("gated", TORCH_FN(gated_without_data)); }
TORCH_LIBRARY_IMPL(examples_cpp, Autograd, m) { m.impl("gated", TORCH_FN(gated_with_autograd)); }
