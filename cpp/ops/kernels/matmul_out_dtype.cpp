// Products of 16-bit matrices with float32 results (the argument out_dtype of torch.mm and its
// relatives), which the CPU does not have: the factors are converted first, which is exact.
#include <ATen/ScalarOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include <vector>

#include "backend/library.h"
#include "ops/launch/function_kernel.h"
#include "ops/tensors/factories.h"

namespace openreg::ops {

namespace {

void multiply(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  const auto dtype = out.scalar_type();
  if (out.dim() == 2) {
    at::mm_out(out, a.to(dtype), b.to(dtype));
  } else {
    at::bmm_out(out, a.to(dtype), b.to(dtype));
  }
}

void multiply_and_add(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                      const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  const auto dtype = out.scalar_type();
  if (out.dim() == 2) {
    at::addmm_out(out, self.to(dtype), a.to(dtype), b.to(dtype), beta, alpha);
  } else {
    at::baddbmm_out(out, self.to(dtype), a.to(dtype), b.to(dtype), beta, alpha);
  }
}

const FunctionKernel<&multiply> mm_kernel{"aten::mm.dtype"};
const FunctionKernel<&multiply> bmm_kernel{"aten::bmm.dtype"};
const FunctionKernel<&multiply_and_add> addmm_kernel{"aten::addmm.dtype"};
const FunctionKernel<&multiply_and_add> baddbmm_kernel{"aten::baddbmm.dtype"};

bool gives(at::ScalarType out_dtype, const at::Tensor& factor) {
  const auto dtype = factor.scalar_type();
  return out_dtype == dtype ||
         (out_dtype == at::kFloat && (dtype == at::kHalf || dtype == at::kBFloat16));
}

/// The shape of the product.
std::vector<std::int64_t> check_matrices(const char* first, const at::Tensor& a,
                                         const at::Tensor& b, at::ScalarType out_dtype) {
  TORCH_CHECK(a.dim() == 2, first, " must be a matrix, got ", a.dim(), "-D tensor");
  TORCH_CHECK(b.dim() == 2, "mat2 must be a matrix, got ", b.dim(), "-D tensor");
  TORCH_CHECK(a.size(1) == b.size(0), "mat1 and mat2 shapes cannot be multiplied (", a.size(0), "x",
              a.size(1), " and ", b.size(0), "x", b.size(1), ")");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "input dtypes must be the same");
  TORCH_CHECK(gives(out_dtype, a),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
  return {a.size(0), b.size(1)};
}

std::vector<std::int64_t> check_batches(const at::Tensor& a, const at::Tensor& b,
                                        at::ScalarType out_dtype) {
  TORCH_CHECK(a.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(b.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "batch1 and batch2 must have the same dtype");
  TORCH_CHECK(b.size(0) == a.size(0) && b.size(1) == a.size(2),
              "Expected size for first two dimensions of batch2 tensor to be: [", a.size(0), ", ",
              a.size(2), "] but got: [", b.size(0), ", ", b.size(1), "].");
  TORCH_CHECK(gives(out_dtype, a),
              "out_dtype only supported for torch.float32 output with float16/bfloat16 inputs or "
              "same as input dtypes");
  return {a.size(0), a.size(1), b.size(2)};
}

void check_added(const char* first, const at::Tensor& self, const at::Tensor& a,
                 at::ScalarType out_dtype) {
  TORCH_CHECK(self.scalar_type() == out_dtype || self.scalar_type() == a.scalar_type(),
              "self dtype must match either out_dtype or ", first, " dtype");
}

void resize_out(at::Tensor& out, at::IntArrayRef sizes, at::ScalarType out_dtype) {
  TORCH_CHECK(out_dtype == out.scalar_type(),
              "out_dtype must be the same as the dtype of the provided out tensor");
  at::native::resize_output(out, sizes);
}

at::Tensor mm(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype) {
  auto out = empty_on(self.device(), check_matrices("self", self, mat2, out_dtype), out_dtype);
  mm_kernel.launch(self.device(), self, mat2, out);
  return out;
}

at::Tensor& mm_out(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype,
                   at::Tensor& out) {
  resize_out(out, check_matrices("self", self, mat2, out_dtype), out_dtype);
  mm_kernel.launch(self.device(), self, mat2, out);
  return out;
}

at::Tensor bmm(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype) {
  auto out = empty_on(self.device(), check_batches(self, mat2, out_dtype), out_dtype);
  bmm_kernel.launch(self.device(), self, mat2, out);
  return out;
}

at::Tensor& bmm_out(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype,
                    at::Tensor& out) {
  resize_out(out, check_batches(self, mat2, out_dtype), out_dtype);
  bmm_kernel.launch(self.device(), self, mat2, out);
  return out;
}

at::Tensor addmm(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                 at::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha) {
  const auto sizes = check_matrices("mat1", mat1, mat2, out_dtype);
  check_added("mat1", self, mat1, out_dtype);
  auto out = empty_on(mat1.device(), sizes, out_dtype);
  addmm_kernel.launch(mat1.device(), self.expand(sizes), mat1, mat2, beta, alpha, out);
  return out;
}

at::Tensor& addmm_out(const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2,
                      at::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha,
                      at::Tensor& out) {
  const auto sizes = check_matrices("mat1", mat1, mat2, out_dtype);
  check_added("mat1", self, mat1, out_dtype);
  const auto added = self.expand(sizes);
  resize_out(out, sizes, out_dtype);
  addmm_kernel.launch(mat1.device(), added, mat1, mat2, beta, alpha, out);
  return out;
}

at::Tensor baddbmm(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                   at::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha) {
  const auto sizes = check_batches(batch1, batch2, out_dtype);
  check_added("batch1", self, batch1, out_dtype);
  auto out = empty_on(batch1.device(), sizes, out_dtype);
  baddbmm_kernel.launch(batch1.device(), self.expand(sizes), batch1, batch2, beta, alpha, out);
  return out;
}

at::Tensor& baddbmm_out(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                        at::ScalarType out_dtype, const at::Scalar& beta, const at::Scalar& alpha,
                        at::Tensor& out) {
  const auto sizes = check_batches(batch1, batch2, out_dtype);
  check_added("batch1", self, batch1, out_dtype);
  const auto added = self.expand(sizes);
  resize_out(out, sizes, out_dtype);
  baddbmm_kernel.launch(batch1.device(), added, batch1, batch2, beta, alpha, out);
  return out;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("mm.dtype", TORCH_FN(mm));
  m.impl("mm.dtype_out", TORCH_FN(mm_out));
  m.impl("bmm.dtype", TORCH_FN(bmm));
  m.impl("bmm.dtype_out", TORCH_FN(bmm_out));
  m.impl("addmm.dtype", TORCH_FN(addmm));
  m.impl("addmm.dtype_out", TORCH_FN(addmm_out));
  m.impl("baddbmm.dtype", TORCH_FN(baddbmm));
  m.impl("baddbmm.dtype_out", TORCH_FN(baddbmm_out));
}

}  // namespace openreg::ops
