// Products of 16-bit matrices with float32 results (the argument out_dtype of torch.mm and its
// relatives), which the CPU does not have: the factors are converted first, which is exact.
#include <ATen/ScalarOps.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include <optional>
#include <utility>
#include <vector>

#include "ops/launch/function_kernel.h"
#include "ops/tensors/factories.h"
#include "slot.h"

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

/// `self`: undefined if `beta` is 0, because its content is ignored then.
void multiply_and_add(const std::optional<at::Tensor>& self, const at::Tensor& a,
                      const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha,
                      at::Tensor& out) {
  const auto dtype = out.scalar_type();
  const auto to_add = self ? self->to(dtype) : out;
  if (out.dim() == 2) {
    at::addmm_out(out, to_add, a.to(dtype), b.to(dtype), beta, alpha);
  } else {
    at::baddbmm_out(out, to_add, a.to(dtype), b.to(dtype), beta, alpha);
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

// Both forms of an operator: `out` is undefined for the one that makes its result. `arguments` are
// the kernel's arguments before `out`.
template <class Kernel, class... Arguments>
at::Tensor multiplied(const Kernel& kernel, at::IntArrayRef sizes, at::ScalarType out_dtype,
                      at::Tensor out, const at::Tensor& factor, const Arguments&... arguments) {
  if (out.defined()) {
    TORCH_CHECK(out_dtype == out.scalar_type(),
                "out_dtype must be the same as the dtype of the provided out tensor");
    at::native::resize_output(out, sizes);
  } else {
    out = empty_on(factor.device(), sizes, out_dtype);
  }
  kernel.launch(factor.device(), arguments..., out);
  return out;
}

at::Tensor mm_into(at::Tensor out, const at::Tensor& self, const at::Tensor& mat2,
                   at::ScalarType out_dtype) {
  const auto sizes = check_matrices("self", self, mat2, out_dtype);
  return multiplied(mm_kernel, sizes, out_dtype, std::move(out), self, self, mat2);
}

at::Tensor bmm_into(at::Tensor out, const at::Tensor& self, const at::Tensor& mat2,
                    at::ScalarType out_dtype) {
  const auto sizes = check_batches(self, mat2, out_dtype);
  return multiplied(bmm_kernel, sizes, out_dtype, std::move(out), self, self, mat2);
}

/// What is added to the product; none if its content is ignored.
std::optional<at::Tensor> added(const at::Tensor& self, at::IntArrayRef sizes,
                                const at::Scalar& beta) {
  const auto expanded = self.expand(sizes);
  return beta.equal(0) ? std::nullopt : std::optional(expanded);
}

at::Tensor addmm_into(at::Tensor out, const at::Tensor& self, const at::Tensor& mat1,
                      const at::Tensor& mat2, at::ScalarType out_dtype, const at::Scalar& beta,
                      const at::Scalar& alpha) {
  const auto sizes = check_matrices("mat1", mat1, mat2, out_dtype);
  check_added("mat1", self, mat1, out_dtype);
  return multiplied(addmm_kernel, sizes, out_dtype, std::move(out), mat1, added(self, sizes, beta),
                    mat1, mat2, beta, alpha);
}

at::Tensor baddbmm_into(at::Tensor out, const at::Tensor& self, const at::Tensor& batch1,
                        const at::Tensor& batch2, at::ScalarType out_dtype, const at::Scalar& beta,
                        const at::Scalar& alpha) {
  const auto sizes = check_batches(batch1, batch2, out_dtype);
  check_added("batch1", self, batch1, out_dtype);
  return multiplied(baddbmm_kernel, sizes, out_dtype, std::move(out), batch1,
                    added(self, sizes, beta), batch1, batch2, beta, alpha);
}

/// The two forms of an operator, from a function that takes the output first.
template <auto kInto>
struct Forms;
template <class... A, at::Tensor (*kInto)(at::Tensor, A...)>
struct Forms<kInto> {
  static at::Tensor functional(A... arguments) { return kInto({}, arguments...); }
  static at::Tensor& out(A... arguments, at::Tensor& out) {
    kInto(out, arguments...);
    return out;
  }
  static void register_as(torch::Library& library, const char* name, const char* name_out) {
    library.impl(name, TORCH_FN(functional));
    library.impl(name_out, TORCH_FN(out));
  }
};

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  Forms<&mm_into>::register_as(m, "mm.dtype", "mm.dtype_out");
  Forms<&bmm_into>::register_as(m, "bmm.dtype", "bmm.dtype_out");
  Forms<&addmm_into>::register_as(m, "addmm.dtype", "addmm.dtype_out");
  Forms<&baddbmm_into>::register_as(m, "baddbmm.dtype", "baddbmm.dtype_out");
}

}  // namespace openreg::ops
