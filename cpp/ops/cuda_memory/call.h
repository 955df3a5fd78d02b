#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ops/launch/zero_arguments.h"
#include "ops/wire/argument_reader.h"

namespace openreg::ops::cuda_memory {

/// The arguments of a call that is about to be launched, read from its command. The tensors say
/// where and of which shape their elements are; the elements must not be read. Valid as long as the
/// command.
class Call {
 public:
  /// `op`: the operator as "aten::sort.stable".
  /// `schema`: of the operator; null if the command has its arguments in another order. Then only
  /// tensors can be read.
  Call(std::string_view op, const c10::FunctionSchema* schema, std::span<const std::byte> command,
       ValueFormat format);

  /// The operator without namespace and overload, as "sort".
  std::string_view base_name() const noexcept;

  // By the names of the schema. Throw c10::Error if there is no such argument.
  const c10::IValue& argument(std::string_view name) const;
  const at::Tensor& tensor(std::string_view name) const { return argument(name).toTensor(); }
  std::int64_t integer(std::string_view name) const { return argument(name).toInt(); }
  bool flag(std::string_view name) const { return argument(name).toBool(); }
  /// Undefined, or the default, for None and for an argument that the operator does not have.
  at::Tensor optional_tensor(std::string_view name) const;
  bool optional_flag(std::string_view name, bool otherwise) const;
  bool has(std::string_view name) const;

  /// All tensors of the command, in its order: arguments, then results.
  c10::ArrayRef<at::Tensor> tensors() const noexcept { return tensors_; }
  /// The results, also those that the caller gave as `out`; if there is a schema.
  c10::ArrayRef<at::Tensor> results() const noexcept { return results_; }

 private:
  std::string_view op_;
  const c10::FunctionSchema* schema_;
  ArgumentReader reader_;
  c10::SmallVector<c10::IValue, 8> arguments_;
  c10::SmallVector<at::Tensor, 3> results_;
  c10::SmallVector<at::Tensor, 6> tensors_;
};

}  // namespace openreg::ops::cuda_memory
