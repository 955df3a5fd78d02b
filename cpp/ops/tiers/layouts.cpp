// Sparse, quantized and nested tensors: each kind has its own dispatch key beside that of strided
// tensors, and a table of kernels for it.
#include <c10/core/DeviceGuard.h>

#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_set>

#include "ops/tiers/dispatch.h"
#include "ops/tiers/sparse_dtypes.h"
#include "slot.h"

namespace openreg::ops {

// Note [Other layouts]
//
// The CPU's kernels for these tensors run on the calling thread (tier 3), on aliases of their parts
// (tensor_parts.h). Operators that read no elements, because they only read sizes, make a view, or
// are made of other operators, need no alias: the CPU's kernel gets the device's tensors
// themselves, and the operators that it calls find the device's kernels. CUDA shares these
// functions with the CPU in the same way. They neither wait nor copy.
//
// All operators that have a kernel under the CPU's key are registered by name, except the one that
// pins memory. A fallback would not work: it is not called if an operator has a composite kernel,
// which is meant for strided tensors.
namespace {

using c10::DispatchKey;

std::optional<c10::Device> device_of(const c10::IValue& argument) {
  if (argument.isDevice()) return argument.toDevice();
  if (argument.isTensor() && argument.toTensor().defined()) return argument.toTensor().device();
  return std::nullopt;
}

/// Runs the CPU's kernel on the device's tensors.
template <DispatchKey kCpuKey>
void run_with_device_tensors(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::OptionalDeviceGuard guard;
  for (const auto& argument : torch::jit::last(*stack, op.schema().arguments().size())) {
    const auto device = device_of(argument);
    if (!device || !backend::is_openreg(*device)) continue;
    guard.reset_device(*device);
    break;
  }
  op.redispatchBoxed(c10::DispatchKeySet(kCpuKey), stack);
}

template <DispatchKey kCpuKey>
void run_with_aliases(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  run_on_this_thread(op, kCpuKey, stack);
}

std::unordered_set<std::string> words_of(const char* names) {
  std::istringstream stream(names);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// The function of abs, abs.out and abs_.
std::string function_of(const std::string& name) {
  constexpr std::string_view kOut = ".out";
  if (name.ends_with(kOut)) return name.substr(0, name.size() - kOut.size());
  return name.ends_with('_') ? name.substr(0, name.size() - 1) : name;
}

/// Registers all operators of `name_space` that have a kernel under the CPU's key, except those
/// that are registered `elsewhere`. ATen's function is called with the device's own tensors for
/// some operators, and for all forms of some functions.
template <DispatchKey kCpuKey>
void register_kernels(torch::Library& m, const char* name_space,
                      const char* with_device_tensors = "", const char* elsewhere = "",
                      const char* functions_with_device_tensors = "") {
  auto generic = words_of(with_device_tensors);
  const auto others = words_of(elsewhere);
  const auto functions = words_of(functions_with_device_tensors);
  for (const auto& op : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(kCpuKey)) {
    if (op.getNamespace() != name_space || op.name == "aten::_pin_memory") continue;
    const auto name = c10::toString(op).substr(std::strlen(name_space) + 2);
    const bool is_generic = generic.erase(name) != 0 || functions.contains(function_of(name));
    if (others.contains(name)) continue;
    m.impl(name.c_str(),
           is_generic
               ? torch::CppFunction::makeFromBoxedFunction<&run_with_device_tensors<kCpuKey>>()
               : torch::CppFunction::makeFromBoxedFunction<&run_with_aliases<kCpuKey>>());
  }
  TORCH_INTERNAL_ASSERT(generic.empty(), "the CPU has no kernel for ", *generic.begin());
}

constexpr const char* kSparseGeneric =
    "_nnz sparse_dim _dimI dense_dim _dimV is_coalesced _coalesced_ _indices _values indices "
    "values copy_ copy_sparse_to_sparse_ clone empty.memory_format empty_like zero_ "
    "zeros.out sparse_resize_ sparse_resize_and_clear_ resize_as_sparse_ "
    "_sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors sum";
constexpr const char* kSparseCsrGeneric =
    "_nnz sparse_dim dense_dim values crow_indices col_indices ccol_indices row_indices "
    "copy_ clone empty.memory_format empty_like zero_ normal_ resize_ resize_as_sparse_ sum";
// They call the operator of the same name on the values.
constexpr const char* kSparseElementwise =
    "abs angle asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac isinf isnan "
    "isneginf isposinf log1p nan_to_num neg rad2deg relu round sgn sign signbit sin sinh sqrt "
    "tan tanh trunc";
constexpr const char* kQuantizedGeneric =
    "empty.memory_format empty_strided empty_like empty_quantized _empty_affine_quantized "
    "_empty_per_channel_affine_quantized clone qscheme q_scale q_zero_point "
    "q_per_channel_scales q_per_channel_zero_points q_per_channel_axis as_strided view "
    "_reshape_alias squeeze squeeze.dim squeeze.dims unsqueeze unfold "
    "set_.source_Storage_storage_offset";
constexpr const char* kNestedGeneric =
    "_nested_tensor_size _nested_tensor_strides _nested_tensor_storage_offsets is_same_size "
    "detach alias values view transpose.int squeeze squeeze.dim squeeze.dims unsqueeze "
    "select.int narrow split_with_sizes chunk unbind.int copy_ _to_copy clone empty_like "
    "zero_ normal_ native_dropout add.Tensor mul.Tensor";

}  // namespace

OPENREG_LIBRARY_IMPL_FOR(Sparse, aten, m) {
  register_kernels<DispatchKey::SparseCPU>(m, "aten", kSparseGeneric, kSparseOperators,
                                           kSparseElementwise);
}
OPENREG_LIBRARY_IMPL_FOR(SparseCsr, aten, m) {
  register_kernels<DispatchKey::SparseCsrCPU>(m, "aten", kSparseCsrGeneric, kSparseCsrOperators,
                                              kSparseElementwise);
}
OPENREG_LIBRARY_IMPL_FOR(NestedTensor, aten, m) {
  register_kernels<DispatchKey::NestedTensorCPU>(m, "aten", kNestedGeneric);
}
OPENREG_LIBRARY_IMPL(aten, m) {  // its buffer is a strided tensor
  impl_boxed<&run_with_device_tensors<DispatchKey::CPU>>(m, "_nested_view_from_buffer");
}
OPENREG_LIBRARY_IMPL_FOR(Quantized, aten, m) {
  register_kernels<DispatchKey::QuantizedCPU>(m, "aten", kQuantizedGeneric,
                                              backend::kQuantizedOperators);
}
OPENREG_LIBRARY_IMPL_FOR(Quantized, quantized, m) {
  register_kernels<DispatchKey::QuantizedCPU>(m, "quantized");
}
OPENREG_LIBRARY_IMPL_FOR(Quantized, _quantized, m) {
  register_kernels<DispatchKey::QuantizedCPU>(m, "_quantized");
}
OPENREG_LIBRARY_IMPL_FOR(Quantized, sparse, m) {
  register_kernels<DispatchKey::QuantizedCPU>(m, "sparse");
}

}  // namespace openreg::ops
