#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/launch/call_plan.h"
#include "ops/launch/op_kernel.h"
#include "ops/wire/argument_writer.h"
#include "ops/wire/ivalue_arguments.h"

namespace openreg::ops {

/// An operator as its schema describes it, and the kernel that runs the CPU's kernel on a command's
/// arguments. Made once; lives as long as the process. Thread safe.
class BoxedOperator {
 public:
  enum class Role : std::uint8_t { kInput, kWritten, kOut };
  using Arguments = c10::ArrayRef<c10::IValue>;

  /// The BoxedOperator of `op`; null if `op` cannot be a command.
  static const BoxedOperator* find(const c10::OperatorHandle& op);

  const c10::OperatorHandle& handle() const { return op_; }
  const OpKernel& kernel() const { return *kernel_; }
  const std::vector<Role>& roles() const { return roles_; }
  /// For each result, the argument that it is, or kNew.
  const std::vector<int>& results() const { return results_; }
  static constexpr int kNew = -1;
  std::size_t new_results() const { return new_results_; }
  std::size_t outs() const { return outs_; }
  /// Whether all results are written arguments, so that their sizes are known before the kernel has
  /// run.
  bool knows_sizes() const { return new_results_ == 0 && outs_ == 0; }
  /// Whether the kernel respects the strides of an output: Note [Outputs of any strides].
  bool writes_any_strides() const { return writes_any_strides_; }
  /// Whether an argument is a list of tensors.
  bool takes_lists() const { return takes_lists_; }

  /// Writes all arguments except the out ones, which are written last, when they have their sizes.
  /// False: one of them cannot travel.
  bool write_arguments(ArgumentWriter& writer, Arguments arguments) const;
  /// Reads what write_arguments() wrote, with places for the out arguments.
  torch::jit::Stack read_arguments(ArgumentReader& reader) const;

  /// Runs the CPU's kernel with the arguments on the stack.
  void run_cpu_kernel(torch::jit::Stack& stack) const;

 private:
  class CpuKernel;

  explicit BoxedOperator(const c10::OperatorHandle& op);
  bool read_schema(const char* name);
  void run(ArgumentReader& reader) const;
  static void copy_result(const at::Tensor& from, at::Tensor& to);

  c10::OperatorHandle op_;
  std::unique_ptr<const OpKernel> kernel_;
  ScalarRole scalar_role_ = ScalarRole::kInSignature;
  std::vector<Role> roles_;
  std::vector<int> results_;
  std::size_t new_results_ = 0;
  std::size_t outs_ = 0;
  bool takes_lists_ = false;
  bool writes_any_strides_ = false;
  bool records_gradient_ = false;
};

/// The argument that is the same tensor as the out argument `out`; `out` itself if there is none.
std::size_t input_that_is(BoxedOperator::Arguments arguments, std::size_t out);

/// Whether the output is like the result of torch.empty(0), which any kernel resizes without a
/// warning.
bool is_empty_default(const at::Tensor& out);

}  // namespace openreg::ops
