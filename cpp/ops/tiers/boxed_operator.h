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

/// An operator as its schema describes it, and the kernel that runs the CPU's on a command's
/// arguments. Made once; alive as long as the process. Thread safe.
class BoxedOperator {
 public:
  enum class Role : std::uint8_t { kInput, kWritten, kOut };
  using Arguments = c10::ArrayRef<c10::IValue>;

  /// The one for `op`; null where it cannot be a command.
  static const BoxedOperator* find(const c10::OperatorHandle& op);

  const OpKernel& kernel() const { return *kernel_; }
  const std::vector<Role>& roles() const { return roles_; }
  /// Of each result: the argument that it is, or kNew.
  const std::vector<int>& results() const { return results_; }
  static constexpr int kNew = -1;
  std::size_t new_results() const { return new_results_; }
  std::size_t outs() const { return outs_; }
  /// The results are written arguments: all sizes are known before the kernel has run.
  bool knows_sizes() const { return new_results_ == 0 && outs_ == 0; }
  /// An argument is a list of tensors.
  bool takes_lists() const { return takes_lists_; }

  /// Writes all arguments but the out ones, which come last: they are sized by then. False: one of
  /// them cannot travel.
  bool write_arguments(ArgumentWriter& writer, Arguments arguments) const;
  /// What write_arguments() wrote, with places for the out arguments.
  torch::jit::Stack read_arguments(ArgumentReader& reader) const;

  /// Runs the CPU's kernel with what is on the stack.
  void run_cpu_kernel(torch::jit::Stack& stack) const;

 private:
  class CpuKernel;

  explicit BoxedOperator(const c10::OperatorHandle& op);
  bool read_schema(const char* name);
  void run(ArgumentReader& reader) const;
  static void settle(const at::Tensor& from, at::Tensor& to);

  c10::OperatorHandle op_;
  std::unique_ptr<const OpKernel> kernel_;
  Numbers numbers_ = Numbers::kDecide;
  std::vector<Role> roles_;
  std::vector<int> results_;
  std::size_t new_results_ = 0;
  std::size_t outs_ = 0;
  bool takes_lists_ = false;
};

/// Which argument the out argument `out` is too; `out` itself if none is.
std::size_t input_that_is(BoxedOperator::Arguments arguments, std::size_t out);

/// As torch.empty(0) is: any kernel sizes it without a word.
bool is_fresh(const at::Tensor& out);

}  // namespace openreg::ops
