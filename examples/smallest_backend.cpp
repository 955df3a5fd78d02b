// The smallest backend that trains: what PyTorch asks of a device, with the shortest answers.
// smallest_backend.py builds this file, adds the part in Python, and shows what works.
//
// The device is called "tiny". There is one, its memory is the host's, it has no streams, and each
// operator has finished when it returns. Comments say where a real device differs. PyTorch knows it
// as PrivateUse1, the one device type that is free; the name comes from Python.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstdlib>
#include <cstring>
#include <future>

namespace {

constexpr auto kTiny = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kTiny, 0);
const c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// Which devices exist, and which device and stream does this thread use? All eight functions are
// pure virtual. With several devices or streams, the current ones are thread_local.
struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kTiny; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device == kDevice, "tiny: there is no such device (got ", device, ", expected ",
                kDevice, ")");
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    setDevice(device);
    return kDevice;
  }
  // For destructors, which return to a device that was current before.
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  // backward() runs each node on the stream of its forward pass. Here it is always the default one.
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
};

// Where do the bytes of a tensor come from? From the current device, if there are several.
struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const data = bytes == 0 ? nullptr : std::malloc(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr || bytes == 0, "tiny: out of memory (got ",
                     bytes, " bytes)");
    // A tensor's device is that of this pointer, so the null pointer of an empty tensor has it too.
    return {data, data, &std::free, kDevice};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);  // within the device, so a real one uses a command of its own
  }
};

// Which random numbers come next? A seed, and how many numbers have been drawn since it was set.
struct Generator final : c10::GeneratorImpl {
  Generator() : GeneratorImpl(kDevice, kKeys) {}
  static c10::DeviceType device_type() { return kTiny; }  // for get_generator_or_default

  std::uint64_t current_seed() const override { return state.seed; }
  void set_current_seed(std::uint64_t seed) override { state = {seed, 0}; }
  std::uint64_t get_offset() const override { return state.offset; }
  void set_offset(std::uint64_t offset) override { state.offset = offset; }
  std::uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state.seed;
  }

  // A CPU tensor of bytes. DTensor expects these 16: seed, then offset.
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto tensor = at::empty({sizeof state}, at::kByte);
    std::memcpy(tensor.mutable_data_ptr(), &state, sizeof state);
    return tensor.getIntrusivePtr();
  }
  void set_state(const c10::TensorImpl& tensor) override {
    at::detail::check_rng_state(tensor);
    TORCH_CHECK(tensor.numel() == sizeof state, "tiny: the random state has a wrong size (got ",
                tensor.numel(), " bytes, expected ", sizeof state, ")");
    std::memcpy(&state, tensor.data(), sizeof state);
  }

  // The CPU computes our random numbers: each call gets a CPU generator of its own. It takes 32
  // bits of its seed, so use bits of the product that depend on all of ours. A real kernel would
  // get seed and offset, and the offset would advance by the numbers that it draws.
  at::Generator take_cpu_generator() {
    const std::lock_guard lock(mutex_);
    const auto mixed = (state.seed ^ (state.offset * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
    state.offset += 4;  // DTensor expects multiples of 4
    return at::detail::createCPUGenerator(mixed >> 32);
  }

  Generator* clone_impl() const override {
    auto* const copy = new Generator;
    copy->state = state;
    return copy;
  }

  struct {
    std::uint64_t seed = c10::default_rng_seed_val, offset = 0;
  } state;
};

// What has no interface of its own. The base class raises in each of these functions.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  // Was the device used? backward() asks, and then asks the guard for the current stream.
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    static const auto& generator = *new at::Generator(at::make_generator<Generator>());
    return generator;
  }
  // torch.Generator(device=...)
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    const c10::DeviceGuard guard({kTiny, index});  // raises if there is no such device
    return at::make_generator<Generator>();
  }
};

// New tensors. The guard switches to the device, and raises if there is no such device. The
// fallback would make those of empty() on the CPU and move them, so running out of memory would be
// the CPU's error.
at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(device.value_or(kDevice));
  return at::detail::empty_generic(size, c10::GetAllocator(kTiny), kKeys,
                                   at::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceGuard guard(device.value_or(kDevice));
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kTiny), kKeys,
                                           at::dtype_or_default(dtype));
}

// The elements as a CPU tensor. A real device transfers them instead.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.device() != kDevice) return tensor;
  auto host = at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(),
                            tensor.strides(), tensor.scalar_type());
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

// to(), cpu(), clone() and copy_() end here if one or both tensors are on the device. Dtypes and
// strides may differ, `from` may need broadcasting, and either may have a conj or neg bit.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool /*non_blocking*/) {
  on_host(to).copy_(on_host(from));
  return to;
}

// The fallback writes back the arguments that an operator changes.
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  return copy_from(from, to.resize_(from.sizes()), /*non_blocking=*/false);
}

// Every operator that has no kernel here: PyTorch copies the arguments to the CPU and the results
// back. It would pass a generator on unchanged, but the CPU's kernels refuse one of a device.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const auto kGenerator = c10::getTypePtr<std::optional<at::Generator>>();
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].type()->isSubtypeOf(*kGenerator)) continue;
    auto& given = torch::jit::peek(*stack, i, arguments.size());
    given = at::get_generator_or_default<Generator>(given.toOptional<at::Generator>(),
                                                    at::globalContext().defaultGenerator(kDevice))
                ->take_cpu_generator();
  }
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

// Dropout has no argument for a generator, so by the fallback it would draw from the CPU's.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& x, double p,
                                                  std::optional<bool> train) {
  if (!train.value_or(true)) return {x.clone(), at::ones_like(x, at::kBool)};
  const auto kept = at::empty_like(x, at::kBool).bernoulli_(1 - p);
  return {p == 1 ? x * kept : x * kept / (1 - p), kept};
}

// Weights, biases and statistics that may be missing.
using MaybeTensor = const std::optional<at::Tensor>&;

// This operator changes its running statistics, but its schema does not say so: the fallback would
// change copies. Two others compute the same, and say so.
std::tuple<at::Tensor, at::Tensor, at::Tensor> native_batch_norm(
    const at::Tensor& x, MaybeTensor weight, MaybeTensor bias, MaybeTensor running_mean,
    MaybeTensor running_var, bool train, double momentum, double eps) {
  if (!running_mean || !running_mean->defined())
    return at::_native_batch_norm_legit(x, weight, bias, train, momentum, eps);
  at::Tensor mean = *running_mean, var = *running_var;
  return at::_native_batch_norm_legit(x, weight, bias, mean, var, train, momentum, eps);
}

// LSTM and GRU of out-of-tree devices call fused cells, which the CPU does not have. These consist
// of other operators and are registered at autograd's key, so they have derivatives. The last
// result is for a fused kernel that computes derivatives.
at::Tensor with_bias(const at::Tensor& gates, MaybeTensor bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input_gates,
                                                         const at::Tensor& hidden_gates,
                                                         const at::Tensor& cell,
                                                         MaybeTensor input_bias,
                                                         MaybeTensor hidden_bias) {
  const auto gates = with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias);
  const auto parts = gates.chunk(4, 1);  // in, forget, cell, out
  const auto next = parts[1].sigmoid() * cell + parts[0].sigmoid() * parts[2].tanh();
  return {parts[3].sigmoid() * next.tanh(), next, at::Tensor()};
}

std::tuple<at::Tensor, at::Tensor> gru_cell(const at::Tensor& input_gates,
                                            const at::Tensor& hidden_gates,
                                            const at::Tensor& hidden, MaybeTensor input_bias,
                                            MaybeTensor hidden_bias) {
  const auto input = with_bias(input_gates, input_bias).chunk(3, 1);  // reset, update, new
  const auto before = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const auto update = (input[1] + before[1]).sigmoid();
  const auto fresh = (input[2] + (input[0] + before[0]).sigmoid() * before[2]).tanh();
  return {fresh + update * (hidden - fresh), at::Tensor()};
}

// PyTorch gives convolutions of out-of-tree devices to two operators that exist for them only, so
// the CPU has no kernel. They have the arguments of `convolution`, or those of
// `convolution_backward` without the fourth one, the sizes of the bias.
template <bool kBackward>
void convolution(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  if constexpr (kBackward) {
    const auto channels = torch::jit::peek(*stack, 0, 10).toTensor().size(1);
    stack->insert(stack->end() - 7, std::vector<std::int64_t>{channels});
  }
  run_on_cpu(c10::Dispatcher::singleton().findSchemaOrThrow(
                 kBackward ? "aten::convolution_backward" : "aten::convolution", ""),
             stack);
}

// PyTorch keeps these pointers until the process ends, so nothing deletes the objects.
const bool kRegistered = [] {
  c10::impl::registerDeviceGuard(kTiny, new Guard);
  c10::SetAllocator(kTiny, new Allocator);
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

using torch::CppFunction;

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  // The fallback depends on the last four of these. PyTorch's resize_, like set_ below, takes a
  // longer storage from the allocator and copies by memcpy, so a real device writes its own: it
  // must leave the strides of a tensor that has the size already, or in-place operators on views
  // are wrong.
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("resize_", TORCH_FN(at::native::resize_));
  // The storage of a result or argument matters, so copies would be wrong. Views touch no elements:
  // PyTorch's own code serves every device.
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
  m.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  m.impl("set_.source_Storage", [](at::Tensor& self, at::Storage source) -> at::Tensor& {
    return at::native::set_(self, std::move(source));
  });
  // Whether `parameter.data = other` may change the device. Then Module.to() keeps the parameters,
  // and an optimizer that was made before still has them.
  m.impl("_has_compatible_shallow_copy_type",
         [](const at::Tensor&, const at::Tensor&) { return true; });
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("native_batch_norm", TORCH_FN(native_batch_norm));
  // The structured kernel, which PyTorch has for every device, allocates an output that the CPU's
  // kernel for `out` resizes, with a warning, if the loss is reduced.
  m.impl("mse_loss", CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  m.impl("smooth_l1_loss", CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));  // without autograd: inference_mode
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("convolution_overrideable", CppFunction::makeFromBoxedFunction<&convolution<false>>());
  m.impl("convolution_backward_overrideable",
         CppFunction::makeFromBoxedFunction<&convolution<true>>());
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", TORCH_FN(lstm_cell));
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
}

// copy_from handles these bits. PyTorch's kernel resolves a bit by a copy, which has it again.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", CppFunction::makeFallthrough()); }

// For Python: the module seeds the generator, and the process calls the other one before it ends.
TORCH_LIBRARY(tiny, m) {
  m.def("default_generator", [] { return at::globalContext().defaultGenerator(kDevice); });
  // Autograd has a thread for each device. It may still hold Python objects when backward() has
  // returned, and before Python 3.14 the process aborts if it releases them while the interpreter
  // ends. A backward pass that Python has not started holds none, and runs after all others.
  m.def("settle_autograd", [] {
    std::async(std::launch::async, [] {
      (at::ones(1, kDevice).requires_grad_() * 1).backward();
    }).get();
  });
}
