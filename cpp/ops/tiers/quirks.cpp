#include "ops/tiers/quirks.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "ops/launch/half_precision.h"
#include "ops/wire/ivalue_arguments.h"

namespace openreg::ops {

namespace {

struct Entry {
  std::string_view op;  // with '*' at the end: all that begin like this
  Quirk quirk;
  std::string_view reason;
};

constexpr auto kTable = std::to_array<Entry>({
    {"aten::_pack_padded_sequence", Quirk::kDataDependent, "as many rows as the lengths say"},
    {"aten::_ctc_loss", Quirk::kDataDependent, "the greatest length is a size of the result"},
    {"aten::_ctc_loss.Tensor", Quirk::kDataDependent, "the same, with lengths as tensors"},
    {"aten::linalg_lstsq.out", Quirk::kDataDependent, "residuals only if the rank is full"},
    {"aten::_linalg_svd*", Quirk::kDataDependent, "LinAlgError if it does not converge"},
    {"aten::_linalg_eigh*", Quirk::kDataDependent, "the same"},
    {"aten::_linalg_eigvals", Quirk::kDataDependent, "the same"},
    {"aten::linalg_eig*", Quirk::kDataDependent, "the same"},
    {"aten::_nested_from_padded", Quirk::kDataDependent, "sizes are elements of a CPU tensor"},
    {"aten::_padded_dense_to_jagged_forward", Quirk::kDataDependent, "as many rows as offsets say"},
    {"aten::_assert_async", Quirk::kDataDependent, "what it checks is an element"},
    {"aten::_assert_async.msg", Quirk::kDataDependent, "the same"},
    {"aten::_sobol_engine_*", Quirk::kDataDependent, "writes 30 columns, whatever the sizes"},
    {"aten::_resize_output_", Quirk::kChangesStorage, "grows the storage"},
    {"aten::resize_as_sparse_", Quirk::kChangesStorage, "the same"},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", Quirk::kNotRandom,
     "the CPU's takes no dropout"},
    {"aten::upsample_*", Quirk::kMetaChecksAll, "output_size and input_size"},
    {"aten::_upsample_*", Quirk::kMetaChecksAll, "the same"},
    {"aten::_upsample_bilinear2d_aa*", Quirk::kNumbersMatchSizes, "reads where given scales lead"},
    {"aten::_upsample_bicubic2d_aa*", Quirk::kNumbersMatchSizes, "the same"},
    {"aten::_upsample_lanczos2d_aa*", Quirk::kNumbersMatchSizes, "the same"},
    {"aten::adaptive_max_pool2d", Quirk::kMetaChecksAll, "output_size"},
    {"aten::adaptive_max_pool3d", Quirk::kMetaChecksAll, "output_size"},
    {"aten::max_pool2d_with_indices*", Quirk::kMetaChecksAll, "what a window leaves of an image"},
    {"aten::max_pool3d_with_indices*", Quirk::kMetaChecksAll, "the same"},
    {"aten::avg_pool*", Quirk::kMetaChecksAll, "the same"},
    {"aten::_fused_adam_*", Quirk::kNumbersScale, "the learning rate is scheduled"},
    {"aten::_fused_adamw_*", Quirk::kNumbersScale, "the same"},
    {"aten::_fused_sgd_*", Quirk::kNumbersScale, "the same"},
    {"aten::_fused_adagrad_*", Quirk::kNumbersScale, "the same"},
    {"aten::_foreach_*", Quirk::kNumbersScale, "the same"},
    {"aten::masked_fill*", Quirk::kNumbersScale, "any number that the dtype holds"},
    {"aten::index_fill*", Quirk::kNumbersScale, "the same"},
    {"aten::mm", Quirk::kWritesAnyStrides, "copies, where BLAS does not take the strides"},
    {"aten::addmm", Quirk::kWritesAnyStrides, "the same"},
    {"aten::bmm", Quirk::kWritesAnyStrides, "the same"},
    {"aten::baddbmm", Quirk::kWritesAnyStrides, "the same"},
    {"aten::addbmm.out", Quirk::kWritesAnyStrides, "calls addmm"},
    {"aten::abs.out", Quirk::kWritesAnyStrides, "iterates over elements"},
    {"aten::angle.out", Quirk::kWritesAnyStrides, "the same"},
    {"aten::logit.out", Quirk::kWritesAnyStrides, "the same"},
    {"aten::logical_and.out", Quirk::kWritesAnyStrides, "the same"},
    {"aten::logical_or.out", Quirk::kWritesAnyStrides, "the same"},
    {"aten::logical_xor.out", Quirk::kWritesAnyStrides, "the same"},
    {"aten::floor_divide.out", Quirk::kWritesAnyStrides, "the same"},
    {"aten::mse_loss", Quirk::kResizesOutputs, "to the size of all losses, for their mean"},
    {"aten::smooth_l1_loss", Quirk::kResizesOutputs, "the same"},
    {"aten::adaptive_max_pool3d_backward", Quirk::kTakesContiguous, "the indices"},
    {"aten::fractional_max_pool2d_backward", Quirk::kTakesContiguous, "the same"},
    {"aten::mm", Quirk::kSlowInHalf, "products"},
    {"aten::addmm", Quirk::kSlowInHalf, "the same"},
    {"aten::bmm", Quirk::kSlowInHalf, "the same"},
    {"aten::baddbmm", Quirk::kSlowInHalf, "the same"},
    {"aten::convolution", Quirk::kSlowInHalf, "sums of products"},
    {"aten::convolution_backward", Quirk::kSlowInHalf, "the same"},
    {"aten::_scaled_dot_product_flash_attention_for_cpu*", Quirk::kSlowInHalf, "the same"},
    {"aten::addbmm*", Quirk::kSlowInHalf, "products"},
    {"aten::linalg_matrix_exp", Quirk::kScalarInHalf, "4 to 10 times the time of float32"},
    {"aten::erfinv", Quirk::kScalarInHalf, "16 times"},
    {"aten::var.correction*", Quirk::kScalarInHalf, "5 times, of all elements"},
    {"aten::std.correction*", Quirk::kScalarInHalf, "the same"},
    {"aten::var_mean.correction*", Quirk::kScalarInHalf, "the same"},
    {"aten::std_mean.correction*", Quirk::kScalarInHalf, "the same"},
    {"aten::_adaptive_avg_pool3d*", Quirk::kScalarInHalf, "5 to 14 times"},
    {"aten::binary_cross_entropy*", Quirk::kScalarInHalf, "2 to 4 times"},
    {"aten::grid_sampler_*", Quirk::kScalarInHalf, "3 times and more"},
    {"aten::lstm.input", Quirk::kNotRandom, "called without dropout (recurrent.cpp)"},
    {"aten::gru.input", Quirk::kNotRandom, "the same"},
    {"aten::rnn_*", Quirk::kNotRandom, "the same"},
    {"aten::mkldnn_rnn_layer", Quirk::kRecordsGradient, "the workspace"},
    {"aten::gelu", Quirk::kIgnoresOutStrides, "oneDNN's result stays in a copy of the output"},
});

/// Operators that CUDA has for dtypes of half precision, and the CPU has not. These have meta
/// functions; for the others, see dtypes_of_cuda.cpp.
constexpr auto kNoHalfOnCpu = std::to_array<std::string_view>({
    "aten::_upsample_bicubic2d_aa*",
    "aten::_upsample_bilinear2d_aa*",
    "aten::_upsample_lanczos2d_aa*",
    "aten::avg_pool3d*",
});

/// The same for complex numbers of half precision.
constexpr auto kNoComplexHalfOnCpu = std::to_array<std::string_view>({
    "aten::acos",
    "aten::acosh",
    "aten::asin",
    "aten::asinh",
    "aten::atan",
    "aten::atanh",
    "aten::cos",
    "aten::cosh",
    "aten::cumprod",
    "aten::cumsum",
    "aten::div.Tensor",
    "aten::exp",
    "aten::lerp.Scalar",
    "aten::lerp.Tensor",
    "aten::log",
    "aten::logaddexp",
    "aten::pow.Scalar",
    "aten::pow.Tensor_Scalar",
    "aten::pow.Tensor_Tensor",
    "aten::prod.dim_int",
    "aten::reciprocal",
    "aten::rsqrt",
    "aten::sgn",
    "aten::sigmoid",
    "aten::sigmoid_backward",
    "aten::sin",
    "aten::sinh",
    "aten::sqrt",
    "aten::sum.dim_IntList",
    "aten::tan",
    "aten::tanh",
    "aten::tanh_backward",
});

bool names(std::string_view pattern, std::string_view op) {
  if (!pattern.ends_with('*')) return pattern == op;
  pattern.remove_suffix(1);
  return op.starts_with(pattern);
}

/// Whether an operator's argument is among these.
bool lists(std::span<const std::array<std::string_view, 2>> arguments, std::string_view op,
           std::string_view argument) {
  return std::ranges::find(arguments, std::array{op, argument}) != arguments.end();
}

}  // namespace

bool has_quirk(const char* op, Quirk quirk) {
  return std::any_of(kTable.begin(), kTable.end(), [&](const Entry& entry) {
    return entry.quirk == quirk && names(entry.op, op);
  });
}

std::span<const c10::ScalarType> widened_dtypes(const char* op) {
  const auto is_one_of = [op](std::span<const std::string_view> patterns) {
    return std::ranges::any_of(patterns, [op](auto pattern) { return names(pattern, op); });
  };
  if (is_one_of(kNoHalfOnCpu)) return kHalfDtypes;
  if (is_one_of(kNoComplexHalfOnCpu)) return kComplexHalfDtypes;
  if (has_quirk(op, Quirk::kScalarInHalf)) return kHalfDtypes;
  if (has_quirk(op, Quirk::kSlowInHalf)) return HalfInstructions::here().missing();
  return {};
}

OutputSupport output_support(const char* op, bool iterates) {
  if (has_quirk(op, Quirk::kResizesOutputs)) return OutputSupport::kNone;
  const bool any = iterates ? !has_quirk(op, Quirk::kIgnoresOutStrides)
                            : has_quirk(op, Quirk::kWritesAnyStrides);
  return any ? OutputSupport::kAnyStrides : OutputSupport::kDefaultStrides;
}

bool is_written(const char* op, const c10::Argument& argument) {
  static constexpr auto kUndeclared = std::to_array<std::array<std::string_view, 2>>({
      {"aten::native_batch_norm", "running_mean"},
      {"aten::native_batch_norm", "running_var"},
      {"aten::native_batch_norm.out", "running_mean"},
      {"aten::native_batch_norm.out", "running_var"},
      {"aten::batch_norm_update_stats", "running_mean"},
      {"aten::batch_norm_update_stats", "running_var"},
  });
  return is_written(argument.alias_info()) || lists(kUndeclared, op, argument.name());
}

bool takes_cpu_tensors(const char* op, const char* argument) {
  static constexpr auto kArguments = std::to_array<std::array<std::string_view, 2>>({
      {"aten::_index_put_impl_", "indices"},
      {"aten::_pack_padded_sequence", "lengths"},
      {"aten::_ctc_loss.Tensor", "input_lengths"},
      {"aten::_ctc_loss.Tensor", "target_lengths"},
      {"aten::_nested_from_padded", "cpu_nested_shape_example"},
  });
  const std::string_view name = op;
  static constexpr auto kPyTorchs =
      std::to_array<std::string_view>({"aten::", "quantized::", "_quantized::", "sparse::"});
  const bool pytorchs = std::any_of(kPyTorchs.begin(), kPyTorchs.end(),
                                    [&](auto space) { return name.starts_with(space); });
  if (!pytorchs) return true;
  return lists(kArguments, op, argument);
}

}  // namespace openreg::ops
