#include "ops/tiers/boxed_operator.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/copy_native.h>

#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>

#include "backend/result_placement.h"
#include "ops/tiers/quirks.h"
#include "ops/tiers/small_lists.h"
#include "ops/tiers/structured_outputs.h"

namespace openreg::ops {

namespace {

const char* name_of(const c10::OperatorHandle& op) {
  return operator_name(op.schema().name().c_str(), op.schema().overload_name().c_str());
}

bool is_left_to_tier_3(const c10::OperatorHandle& op, const char* name) {
  const bool is_random =  // draws from the generator that only tier 3 provides
      op.hasTag(at::Tag::nondeterministic_seeded) && !has_quirk(name, Quirk::kNotRandom);
  return is_random || op.hasTag(at::Tag::dynamic_output_shape) ||
         op.hasTag(at::Tag::data_dependent_output) || has_quirk(name, Quirk::kDataDependent) ||
         has_quirk(name, Quirk::kChangesStorage);
}

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// An executor finds the operator by its name, if its kernel is code of a library that it has, too.
std::optional<std::string> describe_boxed(const Kernel&) { return ""; }

const Kernel* make_boxed(const std::string& name, const std::string&) {
  const auto dot = name.find('.');
  const c10::OperatorName operator_name(name.substr(0, dot),
                                        dot == std::string::npos ? "" : name.substr(dot + 1));
  const auto op = c10::Dispatcher::singleton().findSchema(operator_name);
  const auto* const boxed = op ? BoxedOperator::find(*op) : nullptr;
  return boxed ? &boxed->kernel() : nullptr;
}

const KernelFactory kBoxedFactory("boxed operator", &describe_boxed, &make_boxed);

}  // namespace

/// A kernel with a reference to its operator.
class BoxedOperator::CpuKernel final : public OpKernel {
 public:
  CpuKernel(const char* name, const BoxedOperator& op)
      : CpuKernel(name, op, list_computation(name)) {}

 private:
  CpuKernel(const char* name, const BoxedOperator& op, ListComputation lists)
      : OpKernel(name,
                 [](const OpKernel& kernel, ArgumentReader& reader) {
                   static_cast<const CpuKernel&>(kernel).op_.run(reader);
                 },
                 {.factory = &kBoxedFactory},
                 {.widened = widened_dtypes(name),
                  .raw = lists == ListComputation::kNone ? nullptr : &compute_lists}),
        op_(op),
        lists_(lists) {}

  static bool compute_lists(const OpKernel& kernel, const CommandView& command) {
    const auto& self = static_cast<const CpuKernel&>(kernel);
    return compute_small_lists(self.op_, self.lists_, command);
  }

  const BoxedOperator& op_;
  const ListComputation lists_;
};

std::size_t input_that_is(BoxedOperator::Arguments arguments, std::size_t out) {
  for (std::size_t i = 0; i < out; ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().is_same(arguments[out].toTensor()))
      return i;
  }
  return out;
}

bool is_empty_default(const at::Tensor& out) {
  return out.dim() == 1 && out.size(0) == 0 && out.stride(0) == 1;
}

const BoxedOperator* BoxedOperator::find(const c10::OperatorHandle& op) {
  // Leaked, because launches may happen during static destruction.
  struct Operators {
    std::shared_mutex mutex;
    std::unordered_map<c10::OperatorHandle, std::unique_ptr<const BoxedOperator>> by_handle;
  };
  static auto& operators = *new Operators;
  const auto usable = [](const BoxedOperator& found) { return found.kernel_ ? &found : nullptr; };
  {
    const std::shared_lock lock(operators.mutex);
    const auto found = operators.by_handle.find(op);
    if (found != operators.by_handle.end()) return usable(*found->second);
  }
  const std::unique_lock lock(operators.mutex);
  auto& entry = operators.by_handle[op];
  if (!entry) entry.reset(new BoxedOperator(op));
  return usable(*entry);
}

BoxedOperator::BoxedOperator(const c10::OperatorHandle& op) : op_(op) {
  const auto* const name = name_of(op);
  if (is_left_to_tier_3(op, name) || !read_schema(name)) return;
  if (has_quirk(name, Quirk::kNumbersScale)) scalar_role_ = ScalarRole::kScaleOnly;
  writes_any_strides_ = output_support(name, /*iterates=*/false) == OutputSupport::kAnyStrides;
  records_gradient_ = has_quirk(name, Quirk::kRecordsGradient);
  kernel_ = std::make_unique<CpuKernel>(name, *this);
}

/// False: the operator cannot be a command.
bool BoxedOperator::read_schema(const char* name) {
  const auto& schema = op_.schema();
  if (schema.is_vararg() || schema.is_varret()) return false;
  for (const auto& argument : schema.arguments()) {
    if (!is_encodable(*argument.type())) return false;
    const auto* alias = argument.alias_info();
    // Views and the like; arguments that are written are recognised below.
    if (alias != nullptr && !is_written(alias)) return false;
    const bool written = is_written(name, argument);
    roles_.push_back(argument.is_out() ? Role::kOut : written ? Role::kWritten : Role::kInput);
    if (argument.is_out()) {
      if (argument.type()->kind() != c10::TypeKind::TensorType) return false;
      ++outs_;
    } else if (holds_tensors(*argument.type())) {
      takes_lists_ |= argument.type()->kind() == c10::TypeKind::ListType;
    }
  }
  for (const auto& result : schema.returns()) {
    int argument = kNew;
    if (result.alias_info() != nullptr) {
      for (std::size_t i = 0; i < roles_.size(); ++i) {
        const auto* alias = schema.arguments()[i].alias_info();
        if (alias != nullptr && alias->beforeSets() == result.alias_info()->beforeSets())
          argument = static_cast<int>(i);
      }
      if (argument == kNew) return false;
    } else if (result.type()->kind() != c10::TypeKind::TensorType) {
      return false;
    } else {
      ++new_results_;
    }
    results_.push_back(argument);
  }
  return true;
}

bool BoxedOperator::write_arguments(ArgumentWriter& writer, Arguments arguments) const {
  // Kernels choose algorithms, and the strides of results, by the number of threads.
  writer.add_signature_word(static_cast<std::uint64_t>(at::get_num_threads()));
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    writer.at_argument(static_cast<std::int16_t>(i));
    if (roles_[i] == Role::kOut) {
      const auto& out = arguments[i].toTensor();
      writer.add_signature_word(static_cast<std::uint64_t>(out.scalar_type()));
      writer.add_signature_word(input_that_is(arguments, i));
      if (out.numel() == 0 && !is_empty_default(out)) {  // kernels may change their strides
        for (const auto size : out.sizes())
          writer.add_signature_word(static_cast<std::uint64_t>(size));
        for (const auto stride : out.strides())
          writer.add_signature_word(static_cast<std::uint64_t>(stride));
      }
      continue;
    }
    const auto access = roles_[i] == Role::kWritten ? Access::kWrite : Access::kRead;
    const auto& type = *op_.schema().arguments()[i].type();
    if (!write_ivalue(writer, arguments[i], type, access, scalar_role_)) return false;
  }
  return true;
}

torch::jit::Stack BoxedOperator::read_arguments(ArgumentReader& reader) const {
  torch::jit::Stack stack;
  stack.reserve(roles_.size() + new_results_);
  for (const auto role : roles_)
    stack.push_back(role == Role::kOut ? c10::IValue() : read_ivalue(reader));
  return stack;
}

void BoxedOperator::run_cpu_kernel(torch::jit::Stack& stack) const {
  const at::AutoGradMode grad_mode(records_gradient_);
  op_.redispatchBoxed(kCpu, &stack);
}

// The arguments are followed by the new results, each with the allocation that it comes from, and
// the out arguments.
void BoxedOperator::run(ArgumentReader& reader) const {
  auto stack = read_arguments(reader);
  c10::SmallVector<at::Tensor, 3> made;
  c10::SmallVector<backend::Placement, 3> places;
  for (std::size_t i = 0; i < new_results_; ++i) {
    const auto allocation = reader.value<std::int32_t>();
    made.push_back(reader.tensor());
    // The kernel of another dtype, whose tensor is widened, allocates other memory than the one
    // that was probed.
    if (allocation != backend::AllocationLog::kNone && made.back().defined() &&
        is_device_memory(made.back().const_data_ptr()))
      places.push_back({allocation, made.back().mutable_data_ptr(), made.back().nbytes()});
  }
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i] == Role::kOut) stack[i] = reader.tensor();
  }
  {
    const backend::ResultPlacement placement({places.data(), places.size()});
    run_cpu_kernel(stack);
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (results_[i] == kNew) copy_result(stack[i].toTensor(), made[next++]);
  }
}

// Copies a kernel's result to its place, if it is not there already.
void BoxedOperator::copy_result(const at::Tensor& from, at::Tensor& to) {
  TORCH_CHECK(
      from.defined() == to.defined() && (!to.defined() || from.sizes() == to.sizes()),
      "openreg: the shape of a result depends on the values of a tensor; call the operator on "
      "the CPU");
  if (!to.defined() || to.numel() == 0) return;
  const bool placed = from.const_data_ptr() == to.const_data_ptr();
  if (placed && from.strides() == to.strides()) return;
  at::native::copy_(to, placed ? from.clone() : from, /*non_blocking=*/false);
}

}  // namespace openreg::ops
