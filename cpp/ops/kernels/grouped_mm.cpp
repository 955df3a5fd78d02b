// Products of groups of matrices (torch.nn.functional.grouped_mm, scaled_grouped_mm). The device
// reads where a group ends, so each product is one command; ATen's own code for backends without a
// kernel reads it on the host.
#include <ATen/BlasBackend.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/GroupedMMUtils.h>
#include <ATen/native/Resize.h>

#include <optional>

#include "ops/launch/function_kernel.h"
#include "ops/tensors/checks.h"
#include "slot.h"

namespace openreg::ops {

namespace {

using OptionalDtype = std::optional<at::ScalarType>;

void multiply_groups(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& offs,
                     at::Tensor& out) {
  at::native::_grouped_mm_fallback(a, b, offs, std::nullopt, out.scalar_type(), out);
}

/// Each row of a, and each column of b, has a scale, or one for each group if the groups lie along
/// the contracted dimension.
void multiply_scaled(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a,
                     const at::Tensor& scale_b, const OptionalTensor& offs, at::Tensor& out) {
  auto rows = a.to(at::kFloat);
  auto columns = b.to(at::kFloat);
  auto product = at::empty_like(out, out.options().dtype(at::kFloat));
  const bool scales_of_groups = a.dim() == 2 && b.dim() == 2;
  if (!scales_of_groups) {
    rows.mul_(scale_a.unsqueeze(-1));
    columns.mul_(scale_b.unsqueeze(-2));
  }
  multiply_groups(rows, columns, offs, product);
  if (scales_of_groups) {
    product.mul_(scale_a.view({out.size(0), out.size(1), 1}));
    product.mul_(scale_b.view({out.size(0), 1, out.size(2)}));
  }
  out.copy_(product);
}

const FunctionKernel<&multiply_groups> grouped_mm_kernel{"aten::_grouped_mm"};
const FunctionKernel<&multiply_scaled> scaled_kernel{"aten::_scaled_grouped_mm"};

/// Shapes: a [M, K] or [groups, M, K], b [K, N] or [groups, K, N]. If one of them has two
/// dimensions, offs [groups], int32, contains the end of each group in the dimension that the
/// groups share: M, N, or K if both have two.
/// \return [M, N], or [groups, M, N] if both have two dimensions, or both three.
at::Tensor grouped_mm(const at::Tensor& a, const at::Tensor& b, const OptionalTensor& offs,
                      const OptionalTensor& bias, OptionalDtype out_dtype) {
  at::native::_grouped_mm_validate_inputs(a, b, offs, bias, out_dtype);
  const auto dtype = at::native::_resolve_grouped_mm_out_dtype(a, b, out_dtype);
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "expected mat1 and mat2 to have the same dtype, ",
              "but got: ", a.dtype(), " != ", b.dtype());
  auto out = at::native::create_grouped_gemm_output_tensor(a, b, offs, dtype);
  grouped_mm_kernel.launch(a.device(), a, b, offs, out);
  return out;
}

void check_scale(const char* name, const at::Tensor& scale, const at::Tensor& matrix,
                 std::int64_t dim, std::int64_t multiplier) {
  TORCH_CHECK(scale.scalar_type() == at::kFloat,
              "openreg: scaled_grouped_mm takes only float32 scales of rows (got ", name, " of ",
              scale.scalar_type(), ", expected Float)");
  const auto size = matrix.size(dim) * multiplier;
  if (matrix.dim() == 2) {
    TORCH_CHECK(scale.dim() == 1, "Expected ", name, " to be 1D tensor, but got ", scale.dim(),
                "D tensor.");
    TORCH_CHECK(scale.is_contiguous(), "Expected ", name, " to be contiguous.");
    TORCH_CHECK(scale.size(0) == size, "Expected ", name, " to have ", size, " elements, got ",
                scale.size(0), " elements.");
    return;
  }
  TORCH_CHECK(scale.dim() == 2, "Expected ", name, " to be 2D tensor, but got ", scale.dim(),
              "D tensor.");
  TORCH_CHECK(scale.stride(1) == 1, "Expected ", name, " to be contiguous in the last dimension.");
  TORCH_CHECK(scale.size(0) == matrix.size(0), "Expected ", name, " batch dimension to be ",
              matrix.size(0), ", got ", scale.size(0), ".");
  TORCH_CHECK(scale.size(1) == size, "Expected ", name, " non-batch dimension to be ", size,
              ", got ", scale.size(1), ".");
}

void check_float8(const at::Tensor& a, const at::Tensor& b) {
  constexpr auto kDtype = at::kFloat8_e4m3fn;
  TORCH_CHECK(a.scalar_type() == kDtype && b.scalar_type() == kDtype,
              "Expected inputs of E4M3 FP8 type but got mat_a.dtype=", a.scalar_type(),
              " and mat_b.dtype=", b.scalar_type(), ".");
  TORCH_CHECK((a.dim() == 2 || a.dim() == 3) && (b.dim() == 2 || b.dim() == 3),
              "Multiplicands must be 2D or 3D but got mat_a.dim()=", a.dim(),
              " and mat_b.dim()=", b.dim());
  TORCH_CHECK((a.dim() == 2 && b.dim() == 2) || a.size(-1) == b.size(-2),
              "contraction dimension of mat_a and mat_b must match");
  TORCH_CHECK(a.stride(-1) == 1 && a.stride(-2) > 1,
              "Expected mat_a tensor to be row major in the last two dimensions, got strides ",
              a.strides().slice(a.dim() - 2));
  TORCH_CHECK(b.stride(-2) == 1 && b.stride(-1) > 1,
              "Expected mat_b tensor to be column major in the last two dimensions, got strides ",
              b.strides().slice(b.dim() - 2));
}

/// Shapes as for grouped_mm. The matrices are float8_e4m3fn. The scales are float32, with shape
/// [rows or columns] for a 2D matrix, [groups * rows or columns] if both matrices are 2D, and
/// [groups, rows or columns] for a 3D one.
at::Tensor scaled_grouped_mm(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a,
                             const at::Tensor& scale_b, const OptionalTensor& offs,
                             const OptionalTensor& bias, const OptionalTensor& scale_result,
                             OptionalDtype out_dtype, bool /*use_fast_accum*/) {
  check_float8(a, b);
  at::native::check_valid_strides_and_return_transposed(a);
  at::native::check_valid_strides_and_return_transposed(b);
  const bool needs_offsets = a.dim() == 2 || b.dim() == 2;
  TORCH_CHECK(given(offs) == needs_offsets,
              "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are "
              "3d");
  if (needs_offsets) {
    TORCH_CHECK(offs->dim() == 1, "offs has to be 1D");
    TORCH_CHECK(offs->scalar_type() == at::kInt, "Offsets have to be int32");
  }
  TORCH_CHECK(!given(bias), "Bias not supported yet");
  TORCH_CHECK(!given(scale_result), "Scale result not supported yet");
  const auto multiplier = a.dim() == 2 && b.dim() == 2 ? offs->size(0) : 1;
  check_scale("scale_a", scale_a, a, -2, multiplier);
  check_scale("scale_b", scale_b, b, -1, multiplier);
  const auto dtype = out_dtype.value_or(at::kBFloat16);
  TORCH_CHECK(dtype == at::kBFloat16,
              "Only bf16 high precision output types are supported for "
              "grouped gemm");
  auto out = at::native::create_grouped_gemm_output_tensor(a, b, offs, dtype);
  scaled_kernel.launch(a.device(), a, b, scale_a, scale_b, offs, out);
  return out;
}

#if OPENREG_TORCH_AT_LEAST(2, 14)
using ScaleList = const at::ITensorListRef&;  // the operator is structured
#else
using ScaleList = at::TensorList;
#endif

/// Recipes select the kind of scales; only that of scaled_grouped_mm() is supported.
at::Tensor scaled_grouped_mm_v2(const at::Tensor& a, const at::Tensor& b, ScaleList scale_a,
                                at::IntArrayRef recipe_a, at::IntArrayRef swizzle_a,
                                ScaleList scale_b, at::IntArrayRef recipe_b,
                                at::IntArrayRef swizzle_b, const OptionalTensor& offs,
                                const OptionalTensor& bias, OptionalDtype out_dtype,
                                at::IntArrayRef contraction_dim, bool use_fast_accum) {
  const auto rows = [](ScaleList scales, at::IntArrayRef recipe, at::IntArrayRef swizzle) {
    return scales.size() == 1 && recipe.size() == 1 &&
           recipe[0] == static_cast<std::int64_t>(at::blas::ScalingType::RowWise) &&
           std::all_of(swizzle.begin(), swizzle.end(), [](auto each) {
             return each == static_cast<std::int64_t>(at::blas::SwizzleType::NO_SWIZZLE);
           });
  };
  TORCH_CHECK_NOT_IMPLEMENTED(
      rows(scale_a, recipe_a, swizzle_a) && rows(scale_b, recipe_b, swizzle_b),
      "openreg: scaled_grouped_mm takes scales of rows only (got recipes ", recipe_a, " and ",
      recipe_b, ", expected ScalingType.RowWise, one scale each, not swizzled)");
  if (!contraction_dim.empty()) {
    TORCH_CHECK_VALUE(
        contraction_dim.size() == 2 && a.size(contraction_dim[0]) == b.size(contraction_dim[1]),
        "contraction dimensions of mat_a and mat_b must match (got ", contraction_dim, ")");
  }
  return scaled_grouped_mm(a, b, scale_a.front(), scale_b.front(), offs, bias, std::nullopt,
                           out_dtype, use_fast_accum);
}

#if OPENREG_TORCH_AT_LEAST(2, 14)
at::Tensor& scaled_grouped_mm_v2_out(const at::Tensor& a, const at::Tensor& b, ScaleList scale_a,
                                     at::IntArrayRef recipe_a, at::IntArrayRef swizzle_a,
                                     ScaleList scale_b, at::IntArrayRef recipe_b,
                                     at::IntArrayRef swizzle_b, const OptionalTensor& offs,
                                     const OptionalTensor& bias, OptionalDtype out_dtype,
                                     at::IntArrayRef contraction_dim, bool use_fast_accum,
                                     at::Tensor& out) {
  const auto result =
      scaled_grouped_mm_v2(a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs,
                           bias, out_dtype, contraction_dim, use_fast_accum);
  TORCH_CHECK(out.scalar_type() == result.scalar_type(), "Expected out tensor to have dtype ",
              result.scalar_type(), ", but got ", out.scalar_type(), " instead");
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}
#endif

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("_grouped_mm", TORCH_FN(grouped_mm));
  m.impl("_scaled_grouped_mm", TORCH_FN(scaled_grouped_mm));
  m.impl("_scaled_grouped_mm_v2", TORCH_FN(scaled_grouped_mm_v2));
#if OPENREG_TORCH_AT_LEAST(2, 14)
  m.impl("_scaled_grouped_mm_v2.out", TORCH_FN(scaled_grouped_mm_v2_out));
#endif
}

}  // namespace openreg::ops
