#include "ops/tiers/sparse_dtypes.h"

// Sparse tensors of dtypes and layouts for which CUDA has kernels, and the CPU has not.
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/triangular_solve.h>

#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>

#include "ops/tiers/dispatch.h"
#include "slot.h"

namespace openreg::ops {

namespace {

using c10::DispatchKey;

/// The dtype in which to compute what CUDA has in `dtype`.
std::optional<at::ScalarType> wider_for_sparse(const std::string& op, at::ScalarType dtype) {
  const bool is_product =
      op.ends_with("mm") || op.ends_with("mm_") || op.ends_with("mv") || op.ends_with("matmul");
  if (is_product && dtype != at::kHalf && dtype != at::kBFloat16) return std::nullopt;
  switch (dtype) {
    case at::kHalf:
    case at::kBFloat16:
      return at::kFloat;
    case at::kComplexHalf:
      return at::kComplexFloat;
    case at::kBool:  // of the result, what is not zero is true
      return op.starts_with("aten::add") || op.starts_with("aten::mul") ? std::optional(at::kInt)
                                                                        : std::nullopt;
    default:
      return std::nullopt;
  }
}

at::ScalarType common_dtype_of(at::ArrayRef<c10::IValue> arguments) {
  at::native::ResultTypeState state;
  for (const auto& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined())
      state = at::native::update_result_type_state(argument.toTensor(), state);
  }
  return at::native::result_type(state);
}

void replace_contents(const at::Tensor& tensor, const at::Tensor& contents) {
  if (tensor.layout() == at::kStrided) {
    at::native::resize_output(tensor, contents.sizes());
  } else if (tensor.layout() != at::kSparse) {
    tensor.resize_as_sparse_(contents);
  }
  tensor.copy_(contents);
}

/// Calls the operator again in a wider dtype, and rounds its result.
template <DispatchKey kCpuKey>
void sparse_in_wider_dtype(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const auto is_written = [&](std::size_t i) {
    return arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
  };
  const auto count = arguments.size() - (arguments.back().is_out() ? 1 : 0);
  const auto narrow = common_dtype_of(torch::jit::last(*stack, arguments.size()).slice(0, count));
  const auto wide = wider_for_sparse(op.schema().name(), narrow);
  if (!wide) return run_on_this_thread(op, kCpuKey, stack);
  std::optional<at::Tensor> written;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto& argument = torch::jit::peek(*stack, i, arguments.size());
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::Tensor tensor = argument.toTensor();
    if (tensor.scalar_type() != narrow) continue;
    argument = tensor.to(*wide);
    if (is_written(i)) written = tensor;
  }
  op.callBoxed(*stack);
  auto& result = stack->back();
  const at::Tensor computed = result.toTensor();
  if (computed.scalar_type() != *wide) return;
  const auto rounded = computed.to(narrow);
  if (written) replace_contents(*written, rounded);
  result = written ? *written : rounded;
}

/// triangular_solve.X(self, A, upper, transpose, unitriangular, *, X, M): the CPU takes no diagonal
/// of ones if the matrix has blocks.
void solve_triangular(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const at::Tensor matrix = arguments[1].toTensor();
  if (matrix.layout() != at::kSparseBsr)
    return run_on_this_thread(op, DispatchKey::SparseCsrCPU, stack);
  const at::Tensor b = arguments[0].toTensor();
  auto solution = arguments[5].toTensor(), copy = arguments[6].toTensor();
  const auto computed =
      matrix._nnz() == 0
          ? at::full_like(b, std::numeric_limits<double>::quiet_NaN())
          : std::get<0>(at::triangular_solve(b, matrix.to_dense(), arguments[2].toBool(),
                                             arguments[3].toBool(), arguments[4].toBool()));
  replace_contents(solution, computed);
  at::native::resize_output(copy, {0});
  torch::jit::drop(*stack, arguments.size());
  torch::jit::push(*stack, std::move(solution), std::move(copy));
}

template <DispatchKey kCpuKey>
void register_wider(torch::Library& m, const char* names) {
  std::istringstream stream(names);
  for (std::string name; stream >> name;) {
    if (name != "triangular_solve.X")
      m.impl(name.c_str(),
             torch::CppFunction::makeFromBoxedFunction<&sparse_in_wider_dtype<kCpuKey>>());
  }
}

}  // namespace

OPENREG_LIBRARY_IMPL_FOR(Sparse, aten, m) {
  register_wider<DispatchKey::SparseCPU>(m, kSparseOperators);
}

OPENREG_LIBRARY_IMPL_FOR(SparseCsr, aten, m) {
  register_wider<DispatchKey::SparseCsrCPU>(m, kSparseCsrOperators);
  impl_boxed<&solve_triangular>(m, "triangular_solve.X");
}

}  // namespace openreg::ops
