#include "ops/tiers/uncomputed.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/max.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "address_space/address_space.h"
#include "backend/clean_state.h"
#include "backend/device.h"
#include "backend/race_detection.h"
#include "backend/stream.h"
#include "backend/submit.h"
#include "ops/launch/launch.h"
#include "ops/launch/probe.h"
#include "ops/tensors/cpu_alias.h"
#include "ops/tensors/factories.h"
#include "ops/wire/ivalue_arguments.h"
#include "slot.h"
#include "slot_name.h"

namespace openreg::ops {

namespace {

using memory::ValueTracker;

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && backend::is_openreg(tensor) && tensor.layout() == at::kStrided &&
         tensor.has_storage() && tensor.storage().nbytes() != 0;
}

/// Calls f(tensor) for those of an argument or a result that have memory of a device.
template <class F>
void for_each_on_device(c10::IValue value, F&& f) {
  map_tensors(value, [&](const at::Tensor& tensor) {
    if (has_memory(tensor)) f(tensor);
    return tensor;
  });
}

/// A tensor and the meta tensor that stands for it.
using Pairs = std::vector<std::pair<at::Tensor, at::Tensor>>;

at::Tensor meta_like(const at::Tensor& tensor) {
  auto meta = at::empty_strided(tensor.sizes(), tensor.strides(),
                                tensor.options().device(c10::kMeta).requires_grad(false));
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  return meta;
}

/// Whether what a meta kernel throws means that it cannot run, or is the error of the call.
enum class Errors : std::uint8_t { kRefusals, kOfCall };

bool run_on_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack, Pairs& pairs,
                 Errors errors = Errors::kRefusals) {
  if (!op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) return false;
  const backend::CleanState clean;
  const BelowAutograd below_autograd;
  auto attempt = stack;
  bool strided = true;
  for (auto& value : attempt) {
    if (value.isDevice()) value = c10::Device(c10::kMeta);
    map_tensors(value, [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      strided &= tensor.layout() == at::kStrided;
      if (!strided) return tensor;
      const auto known =
          std::ranges::find_if(pairs, [&](const auto& pair) { return pair.first.is_same(tensor); });
      if (known != pairs.end()) return known->second;
      return pairs.emplace_back(tensor, meta_like(tensor)).second;
    });
  }
  if (!strided) return false;
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &attempt);
  } catch (const std::exception&) {  // data-dependent shapes, for example
    if (errors == Errors::kOfCall) throw;
    return false;
  }
  stack = std::move(attempt);
  return true;
}

/// The device's tensor for a result of a meta kernel: an argument, a view of one, or a new one.
at::Tensor realize(const at::Tensor& meta, c10::Device device, const Pairs& pairs) {
  if (!meta.defined() || !meta.is_meta()) return meta;
  for (const auto& [tensor, stand_in] : pairs) {
    if (meta.is_same(stand_in)) {
      if (tensor.sizes() != meta.sizes()) tensor.resize_(meta.sizes());
      return tensor;
    }
    if (meta.storage().is_alias_of(stand_in.storage())) {
      return tensor.as_strided(meta.sizes(), meta.strides(),
                               tensor.storage_offset() + meta.storage_offset());
    }
  }
  return empty_strided_on(device, meta.sizes(), meta.strides(), meta.scalar_type());
}

void realize_all(torch::jit::Stack& results, c10::Device device, const Pairs& pairs) {
  const BelowAutograd below_autograd;
  for (auto& result : results)
    map_tensors(result, [&](const at::Tensor& meta) { return realize(meta, device, pairs); });
}

/// The kernel without code of this name.
const Kernel& kernel_named(const std::string& name) {
  static auto& kernels = *new std::map<std::string, const Kernel*>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = kernels.try_emplace(name, nullptr);
  if (is_new) found->second = new Kernel(found->first.c_str(), nullptr);
  return *found->second;
}

[[noreturn]] void refuse_shape(const std::string& op, const char* assumption) {
  TORCH_CHECK(false, "openreg: the shape of the result of ", op,
              " depends on values that are not computed; say what to assume, as in `with ",
              kOwnModule, ".assume(", assumption, "):`");
}

std::int64_t share_of(std::int64_t elements, double part) {
  return static_cast<std::int64_t>(std::llround(part * static_cast<double>(elements)));
}

/// A result of assumed values: zeros if they are small.
at::Tensor assumed(c10::Device device, at::IntArrayRef sizes, at::ScalarType dtype) {
  auto result = empty_on(device, sizes, dtype);
  if (has_memory(result) && ValueTracker::is_small(result.nbytes(), backend::dtype_name(dtype))) {
    std::memset(AddressSpace::get().aperture(result.data_ptr()), 0, result.nbytes());
    ValueTracker::get()->written(result.storage().data(), true, memory::Values::kZeros);
  }
  return result;
}

/// The only result: a new one, or the output that the caller gives, in the size of that.
torch::jit::Stack found_or_out(const at::Tensor& found, at::ArrayRef<c10::IValue> given) {
  if (given.empty()) return {found};
  auto out = given[0].toTensor();
  out.resize_(found.sizes());
  return {out};
}

/// The greatest of some lengths, a list or a tensor; none if it is not known.
std::optional<std::int64_t> longest(const c10::IValue& lengths) {
  if (lengths.isIntList()) {
    const auto list = lengths.toIntVector();
    return list.empty() ? 0 : std::ranges::max(list);
  }
  const auto& tensor = lengths.toTensor();
  if (has_memory(tensor) &&
      ValueTracker::get()->values_of(tensor.storage().data()) < memory::Values::kAssumed)
    return std::nullopt;
  return tensor.numel() == 0 ? 0 : tensor.max().item<std::int64_t>();
}

/// The results of operators whose shapes, or whose answers to the host, depend on values.
std::optional<torch::jit::Stack> assumed_results(const c10::OperatorHandle& op, c10::Device device,
                                                 at::ArrayRef<c10::IValue> arguments) {
  const auto& name = op.operator_name().name;
  if (name == "aten::equal") {
    auto& tracker = *ValueTracker::get();
    for (const auto& argument : arguments.slice(0, 2)) {
      const auto& tensor = argument.toTensor();
      if (!has_memory(tensor) ||
          tracker.values_of(tensor.storage().data()) >= memory::Values::kAssumed)
        continue;
      tracker.host_access("aten::equal", backend::use_of(tensor, /*writes=*/false));
      break;
    }
    return torch::jit::Stack{true};
  }
  const auto assumptions = ValueTracker::get()->assumptions();
  if (name == "aten::nonzero") {
    const auto& self = arguments[0].toTensor();
    if (!assumptions.nonzero) refuse_shape(name, "nonzero=0.5");
    const auto found =
        assumed(device, {share_of(self.numel(), *assumptions.nonzero), self.dim()}, at::kLong);
    return found_or_out(found, arguments.slice(1));
  }
  if (name == "aten::masked_select") {
    const auto& self = arguments[0].toTensor();
    if (!assumptions.nonzero) refuse_shape(name, "nonzero=0.5");
    const auto elements = std::max(self.numel(), arguments[1].toTensor().numel());
    const auto found =
        assumed(device, {share_of(elements, *assumptions.nonzero)}, self.scalar_type());
    return found_or_out(found, arguments.slice(2));
  }
  if (name == "aten::_ctc_loss") {
    const auto& log_probs = arguments[0].toTensor();
    const auto most = longest(arguments[3]);
    if (!most) refuse_shape(name, "nonzero=0.5");
    const bool batched = log_probs.dim() == 3;
    const auto batch = batched ? log_probs.size(1) : 1;
    const auto dtype = log_probs.scalar_type();
    c10::SmallVector<std::int64_t, 1> sizes;
    if (batched) sizes.push_back(batch);
    return torch::jit::Stack{assumed(device, sizes, dtype),
                             assumed(device, {batch, log_probs.size(0), 2 * *most + 1}, dtype)};
  }
  if (op.hasTag(at::Tag::dynamic_output_shape) || name == "aten::_to_sparse")
    refuse_shape(name, "nonzero=0.5, routing=\"balanced\"");
  return std::nullopt;
}

}  // namespace

bool run_meta_kernel(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  Pairs pairs;
  return run_on_meta(op, stack, pairs);
}

std::optional<memory::Values> run_uncomputed(const c10::OperatorHandle& op, c10::Device device,
                                             torch::jit::Stack* stack) {
  auto& tracker = *ValueTracker::get();
  const auto& schema = op.schema();
  const auto count = schema.arguments().size();
  auto values = memory::Values::kKnown;
  std::size_t bytes = 0;
  c10::SmallVector<at::Tensor, 4> unknown;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& argument = torch::jit::peek(*stack, i, count);
    if (argument.isDevice() && argument.toDevice().is_cpu()) return memory::Values::kNone;
    if (schema.arguments()[i].is_out()) continue;
    for_each_on_device(argument, [&](const at::Tensor& tensor) {
      const auto known = tracker.values_of(tensor.storage().data());
      values = std::min(values, known);
      bytes += tensor.nbytes();
      if (known == memory::Values::kNone) unknown.push_back(tensor);
    });
  }
  if (values >= memory::Values::kAssumed) return values;

  wait_for_device(device, op.operator_name().name.c_str());
  torch::jit::Stack results(torch::jit::last(*stack, count).vec());
  Pairs pairs;
  if (auto assumed = assumed_results(op, device, torch::jit::last(*stack, count))) {
    results = std::move(*assumed);
  } else if (run_on_meta(op, results, pairs)) {
    realize_all(results, device, pairs);
  } else {
    TORCH_CHECK(bytes <= kMostTried, "openreg: ", op.operator_name(),
                " cannot be called without computing (got tensors of ", bytes,
                " bytes, of which the values are not computed, expected at most ", kMostTried,
                "), because it has no function for the shapes of its results");
    for (const auto& tensor : unknown) {  // it gets zeros
      const auto& storage = tensor.storage();
      if (storage.nbytes() <= kMostTried)
        std::memset(AddressSpace::get().aperture(storage.data()), 0, storage.nbytes());
    }
    return memory::Values::kNone;
  }
  backend::counters::synchronous.add();
  for (std::size_t i = 0; i < count; ++i) {
    if (!is_written(schema.arguments()[i].alias_info())) continue;
    for_each_on_device(torch::jit::peek(*stack, i, count), [&](const at::Tensor& tensor) {
      tracker.written(tensor.storage().data(), false, memory::Values::kNone);
    });
  }
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
  return std::nullopt;
}

bool launch_fake(const c10::OperatorHandle& op, c10::Device device, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  torch::jit::Stack results(torch::jit::last(*stack, arguments.size()).vec());
  Pairs pairs;
  if (!run_on_meta(op, results, pairs, Errors::kOfCall)) return false;
  realize_all(results, device, pairs);
  const auto memory = [&] {
    backend::MemoryOfCommand uses;
    const auto add = [&](const c10::IValue& value, bool writes) {
      for_each_on_device(value, [&](const at::Tensor& tensor) {
        uses.push_back(backend::use_of(tensor, writes));
        uses.back().number = static_cast<std::uint16_t>(uses.size() - 1);
      });
    };
    for (std::size_t i = 0; i < arguments.size(); ++i)
      add(torch::jit::peek(*stack, i, arguments.size()), is_written(arguments[i].alias_info()));
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (op.schema().returns()[i].alias_info() == nullptr) add(results[i], true);
    }
    return uses;
  };
  backend::submit(backend::current_stream(device.index()), kernel_named(op.operator_name().name),
                  {}, memory, {.counted_as = backend::counters::boxed});
  torch::jit::drop(*stack, arguments.size());
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

void note_values(const c10::OperatorHandle& op, torch::jit::Stack& stack, memory::Values values) {
  auto& tracker = *ValueTracker::get();
  for (const auto& result : torch::jit::last(stack, op.schema().returns().size())) {
    for_each_on_device(result, [&](const at::Tensor& tensor) {
      tracker.written(tensor.storage().data(), tensor.nbytes() >= tensor.storage().nbytes(),
                      values);
    });
  }
}

}  // namespace openreg::ops
