#include "ops/tiers/quirks.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "ops/launch/half_precision.h"
#include "ops/launch/operator_names.h"
#include "ops/wire/ivalue_arguments.h"

namespace openreg::ops {

namespace {

struct Entry {
  std::string_view ops;  // of aten, with spaces between; with '*' at the end: all that begin so
  Quirk quirk;
  std::string_view reason;
};

constexpr auto kTable = std::to_array<Entry>({
    {"_pack_padded_sequence", Quirk::kDataDependent, "as many rows as the lengths say"},
    {"_ctc_loss _ctc_loss.Tensor", Quirk::kDataDependent,
     "the greatest length is a size of the result"},
    {"linalg_lstsq.out", Quirk::kDataDependent, "residuals only if the rank is full"},
    {"_linalg_svd* _linalg_eigh* _linalg_eigvals linalg_eig*", Quirk::kDataDependent,
     "LinAlgError if it does not converge"},
    {"_nested_from_padded", Quirk::kDataDependent, "sizes are elements of a CPU tensor"},
    {"_padded_dense_to_jagged_forward", Quirk::kDataDependent, "as many rows as offsets say"},
    {"_assert_async _assert_async.msg", Quirk::kDataDependent, "what it checks is an element"},
    {"_sobol_engine_*", Quirk::kDataDependent, "writes 30 columns, whatever the sizes"},
    {"_resize_output_ resize_as_sparse_", Quirk::kChangesStorage, "grows the storage"},
    {"_scaled_dot_product_flash_attention_for_cpu", Quirk::kNotRandom,
     "the CPU's takes no dropout"},
    {"upsample_* _upsample_*", Quirk::kMetaChecksAll, "output_size and input_size"},
    {"_upsample_bilinear2d_aa* _upsample_bicubic2d_aa* _upsample_lanczos2d_aa*",
     Quirk::kNumbersMatchSizes, "reads where given scales lead"},
    {"adaptive_max_pool2d adaptive_max_pool3d", Quirk::kMetaChecksAll, "output_size"},
    {"max_pool2d_with_indices* max_pool3d_with_indices* avg_pool*", Quirk::kMetaChecksAll,
     "what a window leaves of an image"},
    {"_fused_adam_* _fused_adamw_* _fused_sgd_* _fused_adagrad_* _foreach_*", Quirk::kNumbersScale,
     "the learning rate is scheduled"},
    {"masked_fill* index_fill*", Quirk::kNumbersScale, "any number that the dtype holds"},
    {"mm addmm bmm baddbmm", Quirk::kWritesAnyStrides,
     "copies, where BLAS does not take the strides"},
    {"addbmm.out", Quirk::kWritesAnyStrides, "calls addmm"},
    {"abs.out angle.out logit.out logical_and.out logical_or.out logical_xor.out floor_divide.out",
     Quirk::kWritesAnyStrides, "iterates over elements"},
    {"mse_loss smooth_l1_loss", Quirk::kResizesOutputs,
     "to the size of all losses, for their mean"},
    {"adaptive_max_pool3d_backward fractional_max_pool2d_backward", Quirk::kTakesContiguous,
     "the indices"},
    {"mm addmm bmm baddbmm addbmm*", Quirk::kSlowInHalf, "products"},
    {"convolution convolution_backward _scaled_dot_product_flash_attention_for_cpu*",
     Quirk::kSlowInHalf, "sums of products"},
    {"linalg_matrix_exp", Quirk::kScalarInHalf, "4 to 10 times the time of float32"},
    {"erfinv", Quirk::kScalarInHalf, "16 times"},
    {"var.correction* std.correction* var_mean.correction* std_mean.correction*",
     Quirk::kScalarInHalf, "5 times, of all elements"},
    {"_adaptive_avg_pool3d*", Quirk::kScalarInHalf, "5 to 14 times"},
    {"binary_cross_entropy*", Quirk::kScalarInHalf, "2 to 4 times"},
    {"grid_sampler_*", Quirk::kScalarInHalf, "3 times and more"},
    {"lstm.input gru.input rnn_*", Quirk::kNotRandom, "called without dropout (recurrent.cpp)"},
    {"mkldnn_rnn_layer", Quirk::kRecordsGradient, "the workspace"},
    {"gelu", Quirk::kIgnoresOutStrides, "oneDNN's result stays in a copy of the output"},
});

/// Operators that CUDA has for dtypes of half precision, and the CPU has not. These have meta
/// functions; for the others, see dtypes_of_cuda.cpp.
constexpr std::string_view kNoHalfOnCpu =
    "_upsample_bicubic2d_aa* _upsample_bilinear2d_aa* _upsample_lanczos2d_aa* avg_pool3d*";

/// The same for complex numbers of half precision.
constexpr std::string_view kNoComplexHalfOnCpu =
    "acos acosh asin asinh atan atanh cos cosh cumprod cumsum div.Tensor exp lerp.Scalar "
    "lerp.Tensor log logaddexp pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prod.dim_int "
    "reciprocal rsqrt sgn sigmoid sigmoid_backward sin sinh sqrt sum.dim_IntList tan tanh "
    "tanh_backward";

}  // namespace

bool has_quirk(const char* op, Quirk quirk) {
  return std::any_of(kTable.begin(), kTable.end(), [&](const Entry& entry) {
    return entry.quirk == quirk && names_operator(entry.ops, op);
  });
}

std::span<const c10::ScalarType> widened_dtypes(const char* op) {
  if (names_operator(kNoHalfOnCpu, op)) return kHalfDtypes;
  if (names_operator(kNoComplexHalfOnCpu, op)) return kComplexHalfDtypes;
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
  return is_written(argument.alias_info()) ||
         (names_operator("native_batch_norm native_batch_norm.out batch_norm_update_stats", op) &&
          (argument.name() == "running_mean" || argument.name() == "running_var"));
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
  return std::ranges::find(kArguments, std::array{name, std::string_view(argument)}) !=
         kArguments.end();
}

}  // namespace openreg::ops
