#include "ops/tiers/boxed.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ops/launch/launch.h"
#include "ops/launch/trial.h"
#include "ops/tensors/factories.h"
#include "ops/tiers/structured_outputs.h"
#include "ops/wire/ivalue_arguments.h"

namespace openreg::ops {

// Note [Tier 2]
//
// An asynchronous launch needs memory for the results before the kernel has run, so it has to know
// their shapes; and what is wrong with the arguments has to raise at the call. Structured operators
// have a meta function that tells both. For all others the kernel itself is asked, once for each
// combination of shapes, dtypes, integers and flags: it runs on the calling thread, on tensors of
// zeros (Note [Trial]), and what it returns is remembered. Operators whose results' shapes depend
// on elements cannot be asked that way; PyTorch tags them, and they are left to tier 3, as are
// results that are views, sparse, or share memory, and calls whose trial fails: either there is an
// error to raise, or zeros are not in the kernel's domain.
//
// The command runs the kernel of the out form where the CPU has one of its own that leaves its
// outputs' storage alone, else the functional one, whose results are copied.
namespace {

/// Draws random numbers: from the generator that only tier 3 provides.
bool is_random(const c10::OperatorHandle& op) {
  // The flash path of the CPU takes no dropout.
  return op.hasTag(at::Tag::nondeterministic_seeded) &&
         op.operator_name().name != "aten::_scaled_dot_product_flash_attention_for_cpu";
}

/// What an operator does that its schema does not say.
bool is_left_to_tier_3(const c10::OperatorHandle& op) {
  static const std::unordered_set<std::string> names{
      // The shape of the results depends on elements, or on those of CPU tensors.
      "aten::_pack_padded_sequence", "aten::_ctc_loss", "aten::_ctc_loss.Tensor",
      "aten::linalg_lstsq.out", "aten::_nested_from_padded", "aten::_assert_async",
      "aten::_assert_async.msg",
      // They change the storage of an argument, not its elements.
      "aten::_resize_output_", "aten::resize_as_sparse_"};
  return names.count(c10::toString(op.operator_name())) != 0 ||
         op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output) ||
         is_random(op);
}

/// The overload that writes what `op` returns into its last arguments, if the CPU has a kernel for
/// it. Out forms that PyTorch generates call the functional one: no gain.
std::optional<c10::OperatorHandle> find_out_form(const c10::OperatorHandle& op) {
  auto& dispatcher = c10::Dispatcher::singleton();
  static const auto overloads = [&] {
    std::unordered_map<std::string, std::vector<c10::OperatorName>> names;
    for (const auto& name : dispatcher.getAllOpNames()) names[name.name].push_back(name);
    return names;
  }();
  const auto& schema = op.schema();
  const auto found = overloads.find(schema.name());
  if (found == overloads.end()) return std::nullopt;
  for (const auto& name : found->second) {
    auto candidate = dispatcher.findSchema(name);
    if (!candidate || !candidate->hasKernelForDispatchKey(c10::DispatchKey::CPU)) continue;
    const auto& arguments = candidate->schema().arguments();
    if (arguments.size() != schema.arguments().size() + schema.returns().size()) continue;
    const auto same = std::equal(
        schema.arguments().begin(), schema.arguments().end(), arguments.begin(),
        [](const auto& a, const auto& b) { return !b.is_out() && *a.type() == *b.type(); });
    const auto outs =
        std::all_of(arguments.begin() + static_cast<std::ptrdiff_t>(schema.arguments().size()),
                    arguments.end(), [](const auto& each) { return each.is_out(); });
    if (same && outs) return candidate;
  }
  return std::nullopt;
}

/// As torch.empty(0) is: any kernel sizes it without a word.
bool is_fresh(const at::Tensor& out) {
  return out.dim() == 1 && out.size(0) == 0 && out.stride(0) == 1;
}

/// Which argument the out argument `out` is too; `out` itself if none is.
std::size_t input_that_is(c10::ArrayRef<c10::IValue> arguments, std::size_t out) {
  for (std::size_t i = 0; i < out; ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().is_same(arguments[out].toTensor()))
      return i;
  }
  return out;
}

/// How a result looks; `defined` is false for an undefined tensor.
struct Geometry {
  bool defined = false;
  at::ScalarType dtype = at::kFloat;
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;

  static Geometry of(const at::Tensor& tensor) {
    if (!tensor.defined()) return {};
    return {true,
            tensor.scalar_type(),
            {tensor.sizes().begin(), tensor.sizes().end()},
            {tensor.strides().begin(), tensor.strides().end()}};
  }
};

/// What the trial of a call tells about those that look the same.
struct Learned {
  bool asynchronous = false;
  bool by_out_form = false;
  c10::SmallVector<Geometry, 3> results;  // new results, then out arguments
};

/// An operator and what is known of it.
class BoxedOperator {
 public:
  explicit BoxedOperator(const c10::OperatorHandle& op) : op_(op) {
    if (!read_schema()) return;
    if (new_results_ > 0 && outs_ == 0) out_form_ = find_out_form(op);
    kernel_.emplace(operator_name(op.schema().name().c_str(), op.schema().overload_name().c_str()),
                    &run);
  }

  /// Null: never as a command.
  const Kernel* kernel() const { return kernel_ ? &*kernel_ : nullptr; }
  bool launch(c10::Device device, torch::jit::Stack* stack);

 private:
  enum class Role : std::uint8_t { kInput, kWritten, kOut };
  /// Whether the results of the out form are those of the functional one.
  bool trusts_out_form(c10::ArrayRef<c10::IValue> arguments) const;

  static constexpr int kNew = -1;
  static constexpr std::size_t kMostLearned = 4096;

  bool read_schema();
  bool write_arguments(ArgumentWriter& writer, c10::ArrayRef<c10::IValue> arguments) const;
  Learned learn(ArgumentWriter& writer, c10::ArrayRef<c10::IValue> arguments) const;
  std::shared_ptr<const Learned> lookup(ArgumentWriter& writer,
                                        c10::ArrayRef<c10::IValue> arguments);
  torch::jit::Stack read_arguments(ArgumentReader& reader) const;
  bool out_form_works(std::span<const std::byte> zeros, const Learned& learned) const;
  static void run(std::span<const std::byte> command);

  c10::OperatorHandle op_;
  std::optional<c10::OperatorHandle> out_form_;
  std::optional<Kernel> kernel_;
  std::vector<Role> roles_;
  std::vector<int> results_;  // of each: the argument that it is, or kNew
  std::size_t new_results_ = 0;
  std::size_t outs_ = 0;
  bool takes_lists_ = false;
  bool numbers_count_ = true;  // without tensors to go by, numbers decide about shapes

  std::shared_mutex mutex_;
  std::unordered_map<std::uint64_t, std::shared_ptr<const Learned>> learned_;
};

/// All operators that have been asked for. Leaked: launches may come during static destruction.
class Operators {
 public:
  static Operators& get() {
    static auto* operators = new Operators;
    return *operators;
  }

  BoxedOperator& find(const c10::OperatorHandle& op) {
    {
      const std::shared_lock lock(mutex_);
      const auto found = by_handle_.find(op);
      if (found != by_handle_.end()) return *found->second;
    }
    const std::unique_lock lock(mutex_);
    auto& entry = by_handle_[op];
    if (!entry) {
      entry = std::make_unique<BoxedOperator>(op);
      if (entry->kernel() != nullptr) by_kernel_[entry->kernel()->id()] = entry.get();
    }
    return *entry;
  }

  /// By its kernel's id.
  const BoxedOperator* find(std::uint64_t id) {
    const std::shared_lock lock(mutex_);
    return by_kernel_.at(id);
  }

 private:
  std::shared_mutex mutex_;
  std::unordered_map<c10::OperatorHandle, std::unique_ptr<BoxedOperator>> by_handle_;
  std::unordered_map<std::uint64_t, const BoxedOperator*> by_kernel_;
};

/// False: it cannot be a command.
bool BoxedOperator::read_schema() {
  const auto& schema = op_.schema();
  if (schema.is_vararg() || schema.is_varret() || is_left_to_tier_3(op_)) return false;
  for (const auto& argument : schema.arguments()) {
    if (!travels(*argument.type())) return false;
    const auto* alias = argument.alias_info();
    // Views and the like; what is written is told apart below.
    if (alias != nullptr && !is_written(alias)) return false;
    roles_.push_back(argument.is_out()   ? Role::kOut
                     : is_written(alias) ? Role::kWritten
                                         : Role::kInput);
    if (argument.is_out()) {
      if (argument.type()->kind() != c10::TypeKind::TensorType) return false;
      ++outs_;
    } else if (holds_tensors(*argument.type())) {
      numbers_count_ = false;
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

// Out arguments come last: they are sized by then.
bool BoxedOperator::write_arguments(ArgumentWriter& writer,
                                    c10::ArrayRef<c10::IValue> arguments) const {
  writer.value(kernel_->id());
  // Process-wide settings that kernels look at.
  writer.sign(static_cast<std::uint64_t>(c10::get_default_dtype_as_scalartype()));
  writer.sign(at::globalContext().deterministicAlgorithms() ? 1 : 0);
  for (std::size_t i = 0; i < roles_.size(); ++i) {
    if (roles_[i] == Role::kOut) {
      writer.sign(static_cast<std::uint64_t>(arguments[i].toTensor().scalar_type()));
      writer.sign(input_that_is(arguments, i));
      const auto& out = arguments[i].toTensor();
      if (out.numel() == 0 && !is_fresh(out)) {  // kernels may give these other strides
        for (const auto size : out.sizes()) writer.sign(static_cast<std::uint64_t>(size));
        for (const auto stride : out.strides()) writer.sign(static_cast<std::uint64_t>(stride));
      }
      continue;
    }
    const auto access = roles_[i] == Role::kWritten ? Access::kWrite : Access::kRead;
    const auto& argument = op_.schema().arguments()[i];
    // By how far the deviation is corrected decides whether there are degrees of freedom left.
    const bool counts = numbers_count_ || argument.name() == "correction";
    if (!write_ivalue(writer, arguments[i], *argument.type(), access, counts)) return false;
  }
  return true;
}

// What write_arguments() wrote behind the kernel's id, with places for the out arguments.
torch::jit::Stack BoxedOperator::read_arguments(ArgumentReader& reader) const {
  torch::jit::Stack stack;
  for (const auto role : roles_) {
    stack.push_back(role == Role::kOut ? c10::IValue() : read_ivalue(reader));
  }
  return stack;
}

Learned BoxedOperator::learn(ArgumentWriter& writer, c10::ArrayRef<c10::IValue> arguments) const {
  writer.finish();
  Learned learned;
  const auto on_zeros = [&](std::span<const std::byte> zeros) {
    ArgumentReader reader(zeros);
    reader.value<std::uint64_t>();
    auto stack = read_arguments(reader);
    c10::SmallVector<at::Tensor, 3> outs;
    for (std::size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i] != Role::kOut) continue;
      const auto input = input_that_is(arguments, i);
      const auto& given_out = arguments[i].toTensor();
      const auto options = given_out.options().device(c10::kCPU);
      if (input < i) {
        outs.push_back(stack[input].toTensor());
      } else if (given_out.numel() == 0) {
        outs.push_back(at::empty_strided(given_out.sizes(), given_out.strides(), options));
      } else {
        outs.push_back(at::empty({0}, options));
      }
      stack[i] = outs.back();
    }
    const auto given = stack;
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    learned.results.clear();
    c10::SmallVector<c10::Storage, 4> storages;  // no result may share one
    for (const auto& each : given) {
      if (each.isTensor() && each.toTensor().defined())
        storages.push_back(each.toTensor().storage());
    }
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (results_[i] != kNew) continue;
      const auto& result = stack[i].toTensor();
      const bool plain = !result.defined() ||
                         (result.is_cpu() && result.layout() == at::kStrided &&
                          !result.is_nested() && !result.is_quantized() && !result.is_conj() &&
                          !result.is_neg() && result.is_non_overlapping_and_dense());
      if (!plain) return false;
      learned.results.push_back(Geometry::of(result));
      if (!result.defined()) continue;
      for (const auto& storage : storages) {
        if (storage.is_alias_of(result.storage())) return false;
      }
      storages.push_back(result.storage());
    }
    for (const auto& out : outs) {
      if (out.is_conj() || out.is_neg()) return false;
      learned.results.push_back(Geometry::of(out));
    }
    reader.settle_outputs();
    return true;
  };
  const bool sizes_are_known = new_results_ == 0 && outs_ == 0 && !writer.shares_written_memory();
  learned.asynchronous = (sizes_are_known && passes_on_zeros(writer, /*shrunk=*/true, on_zeros)) ||
                         passes_on_zeros(writer, /*shrunk=*/false, on_zeros);
  learned.by_out_form = learned.asynchronous && out_form_ && trusts_out_form(arguments) &&
                        passes_on_zeros(writer, /*shrunk=*/false,
                                        [&](auto zeros) { return out_form_works(zeros, learned); });
  return learned;
}

// The out form of the CPU's batch normalisation forgets the means where the input is contiguous in
// no memory format.
bool BoxedOperator::trusts_out_form(c10::ArrayRef<c10::IValue> arguments) const {
  if (op_.operator_name().name.find("batch_norm") == std::string::npos) return true;
  const auto& input = arguments.front().toTensor();
  return input.is_contiguous(input.suggest_memory_format());
}

bool BoxedOperator::out_form_works(std::span<const std::byte> zeros, const Learned& learned) const {
  ArgumentReader reader(zeros);
  reader.value<std::uint64_t>();
  auto stack = read_arguments(reader);
  c10::SmallVector<at::Tensor, 3> outs;
  for (const auto& as : learned.results) {
    if (!as.defined) return false;
    outs.push_back(at::empty_strided(as.sizes, as.strides, as.dtype));
    // As a command's outputs are: this throws where the kernel wants another size.
    outs.back().storage().unsafeGetStorageImpl()->set_resizable(false);
    stack.emplace_back(outs.back());
  }
  out_form_->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  return std::equal(outs.begin(), outs.end(), learned.results.begin(),
                    [](const at::Tensor& out, const Geometry& as) {
                      return out.sizes() == as.sizes && out.strides() == as.strides &&
                             !out.is_conj() && !out.is_neg();
                    });
}

std::shared_ptr<const Learned> BoxedOperator::lookup(ArgumentWriter& writer,
                                                     c10::ArrayRef<c10::IValue> arguments) {
  const auto key = writer.signature();
  {
    const std::shared_lock lock(mutex_);
    const auto found = learned_.find(key);
    if (found != learned_.end()) return found->second;
  }
  auto learned = std::make_shared<const Learned>(learn(writer, arguments));
  const std::unique_lock lock(mutex_);
  if (learned_.size() >= kMostLearned) learned_.clear();
  learned_.emplace(key, learned);
  return learned;
}

bool BoxedOperator::launch(c10::Device device, torch::jit::Stack* stack) {
  if (!kernel_) return false;
  const auto count = roles_.size();
  const auto arguments = torch::jit::last(*stack, count);
  ArgumentWriter writer(kernel_->name(), device, Detail::kShapes);
  if (!write_arguments(writer, arguments)) return false;
  // What kernels say of overlapping memory, they say in tier 3. Those of lists say nothing.
  if (!takes_lists_ && writer.written_memory_overlaps()) return false;
  const auto known = lookup(writer, arguments);
  const Learned& learned = *known;
  if (!learned.asynchronous) return false;

  // Of an output that has a wrong size the kernel itself decides: whether to warn, and about
  // strides.
  for (std::size_t i = 0, out = new_results_; i < count; ++i) {
    if (roles_[i] != Role::kOut) continue;
    const auto& tensor = arguments[i].toTensor();
    const auto& as = learned.results[out++];
    if (is_fresh(tensor)) continue;
    const bool restrided = tensor.numel() == 0 && tensor.strides() != at::IntArrayRef(as.strides);
    if (tensor.sizes() != as.sizes || restrided) return false;
  }

  writer.value(learned.by_out_form);
  c10::SmallVector<at::Tensor, 3> made;
  std::size_t next = 0;
  for (; next < new_results_; ++next) {
    const auto& as = learned.results[next];
    made.push_back(as.defined ? empty_strided_on(device, as.sizes, as.strides, as.dtype)
                              : at::Tensor());
    writer.tensor(made.back(), Access::kWrite);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (roles_[i] != Role::kOut) continue;
    const auto& as = learned.results[next++];
    const auto& out = arguments[i].toTensor();
    if (at::native::resize_output(out, as.sizes))
      out.unsafeGetTensorImpl()->set_sizes_and_strides(as.sizes, as.strides);
    writer.tensor(out, Access::kWrite);
  }
  // An output over an input, or over itself: what the kernel says to that, it says in tier 3.
  if (outs_ > 0 && writer.written_memory_overlaps()) return false;
  ops::launch(*kernel_, writer, Tier::kBoxed, Arguments::kKnown);

  torch::jit::Stack results;
  next = 0;
  for (const int argument : results_) {
    results.push_back(argument == kNew ? c10::IValue(made[next++])
                                       : arguments[static_cast<std::size_t>(argument)]);
  }
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), results.begin(), results.end());
  return true;
}

void BoxedOperator::run(std::span<const std::byte> command) {
  ArgumentReader reader(command);
  const BoxedOperator* const self = Operators::get().find(reader.value<std::uint64_t>());
  auto stack = self->read_arguments(reader);
  const bool by_out_form = reader.value<bool>();
  c10::SmallVector<at::Tensor, 3> made;
  for (std::size_t i = 0; i < self->new_results_; ++i) made.push_back(reader.tensor());
  for (std::size_t i = 0; i < self->roles_.size(); ++i) {
    if (self->roles_[i] == Role::kOut) stack[i] = reader.tensor();
  }
  constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);
  if (by_out_form) {
    for (const auto& each : made) stack.emplace_back(each);
    self->out_form_->redispatchBoxed(kCpu, &stack);
  } else {
    self->op_.redispatchBoxed(kCpu, &stack);
    std::size_t next = 0;
    for (std::size_t i = 0; i < self->results_.size(); ++i) {
      if (self->results_[i] != kNew) continue;
      auto& to = made[next++];
      const auto& from = stack[i].toTensor();
      TORCH_CHECK(from.defined() == to.defined() && (!to.defined() || from.sizes() == to.sizes()),
                  "openreg: the shape of a result depends on elements");
      if (to.defined()) at::native::copy_(to, from, /*non_blocking=*/false);
    }
  }
  reader.settle_outputs();
}

}  // namespace

bool launch_boxed(const c10::OperatorHandle& op, c10::Device device, torch::jit::Stack* stack) {
  // Custom operators may be Python, and may go away.
  if (op.operator_name().name.rfind("aten::", 0) != 0) return false;
  return Operators::get().find(op).launch(device, stack);
}

}  // namespace openreg::ops
