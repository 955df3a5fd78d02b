// Dropout in the layout of CUDA's fused kernel: if the tensors allow vectors of 4 or 2 elements,
// the numbers of one call go to adjacent elements. For float32 the results are CUDA's, except in
// one case: with vectors of 2 and more than 540672 elements, CUDA draws numbers that it has not
// taken from the generator.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "ops/launch/function_kernel.h"
#include "ops/launch/vector_clones.h"
#include "ops/random/random_kernels.h"
#include "ops/tensors/checks.h"
#include "slot.h"

namespace openreg::ops {

namespace {

constexpr std::int64_t kMostVectorBytes = 16;
constexpr int kUnroll32 = 4;  // for every dtype: an element takes 32 bits

/// How many elements CUDA's vectors of `input` hold.
int vector_size(const at::Tensor& input) {
  if (!input.is_non_overlapping_and_dense()) return 1;
  const auto address = reinterpret_cast<std::uintptr_t>(input.const_data_ptr());
  for (const int size : {4, 2}) {
    if (size * input.itemsize() > kMostVectorBytes) continue;
    if (input.numel() % size == 0 && address % (size * input.itemsize()) == 0) return size;
  }
  return 1;
}

/// Elements that are dropped are multiplied by 0, as on CUDA: infinities become NaN.
template <class T, class Real>
[[gnu::always_inline]] inline void scale_or_drop(const std::uint32_t* __restrict bits, Real keep,
                                                 const T* __restrict in, T* __restrict out,
                                                 bool* __restrict mask, std::int64_t count) {
  const Real scale = 1 / keep;
  const Real end = keep >= 1 ? 2 : keep;  // with keep = 1 a number that is 1 is kept too
  for (std::int64_t i = 0; i < count; ++i) {
    const bool kept = unit_of<float>(bits[i]) < end;
    mask[i] = kept;
    out[i] = static_cast<T>(static_cast<Real>(in[i]) * static_cast<Real>(kept) * scale);
  }
}
OPENREG_VECTOR_CLONES
void scale_or_drop(const std::uint32_t* bits, float keep, const float* in, float* out, bool* mask,
                   std::int64_t count) {
  scale_or_drop<float, float>(bits, keep, in, out, mask, count);
}

/// Numbers k to k + vector - 1 of n subsequences, interleaved.
template <int vector>
void interleave(const Raw& raw, int k, std::int64_t n, std::uint32_t* bits) {
  for (std::int64_t i = 0; i < n; ++i)
    for (int j = 0; j < vector; ++j) bits[i * vector + j] = raw[k + j][i];
}

template <int vector, class T>
void drop(backend::PhiloxState philox, double keep, const at::Tensor& input, at::Tensor& output,
          at::Tensor& mask) {
  const PhiloxGrid grid(input.numel(), kUnroll32, vector);
  const auto* in = input.const_data_ptr<T>();
  auto* out = output.mutable_data_ptr<T>();
  auto* kept = static_cast<bool*>(mask.mutable_data_ptr());  // or bytes
  for_each_block(grid, philox, [&](const Raw& raw, std::int64_t n, auto&& place) {
    std::array<std::uint32_t, kLanes * vector> bits;
    for (int k = 0; k < kUnroll32 && place(k) < grid.elements; k += vector) {
      const auto begin = place(k);
      interleave<vector>(raw, k, n, bits.data());
      scale_or_drop(bits.data(), static_cast<at::opmath_type<T>>(keep), in + begin, out + begin,
                    kept + begin, std::min(n * vector, grid.elements - begin));
    }
  });
}

/// `vector` is vector_size() of the device's tensor. Vectors are numbered in the order of memory,
/// single elements in that of indices.
void dropout(backend::PhiloxState philox, double keep, std::int64_t vector, const at::Tensor& input,
             at::Tensor& output, at::Tensor& mask) {
  if (vector == 1 && !(input.is_contiguous() && output.is_contiguous())) {
    const auto format = at::MemoryFormat::Contiguous;
    auto ordered_output = at::empty_like(output, format);
    auto ordered_mask = at::empty_like(mask, format);
    dropout(philox, keep, vector, input.contiguous(), ordered_output, ordered_mask);
    output.copy_(ordered_output);
    mask.copy_(ordered_mask);
    return;
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "dropout", [&] {
    if (vector == 4) return drop<4, scalar_t>(philox, keep, input, output, mask);
    if (vector == 2) return drop<2, scalar_t>(philox, keep, input, output, mask);
    drop<1, scalar_t>(philox, keep, input, output, mask);
  });
}

void scale_by_mask(const at::Tensor& self, const at::Tensor& mask, double scale, at::Tensor& out) {
  const auto dtype = at::toOpMathType(self.scalar_type());
  out.copy_(self.to(dtype).mul(mask).mul_(scale));
}

const FunctionKernel<&dropout> dropout_kernel{"aten::native_dropout"};
const FunctionKernel<&dropout> fused_dropout_kernel{"aten::_fused_dropout"};
const FunctionKernel<&scale_by_mask> scale_kernel{"aten::_masked_scale"};

/// \param input any floating shape. \param p the probability of dropping an element, from 0 to 1.
/// \return input scaled by 1 / (1 - p), or 0, and the mask of what is kept, both of input's shape.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", 1 - p);
  const auto mask_options = input.options().dtype(at::kBool);
  if (!train.value_or(true) || input.numel() == 0)
    return {input.clone(), at::ones_like(input, mask_options)};
  if (!at::isFloatingType(input.scalar_type())) {  // CUDA's kernel does not take it
    auto mask = at::empty_like(input, mask_options).bernoulli_(1 - p);
    return {input.mul(mask).mul_(p == 1 ? 0.0 : 1 / (1 - p)), mask};
  }
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, mask_options)};
  auto output = at::empty_like(input);
  auto mask = at::empty_like(input, mask_options);
  dropout_kernel.launch(input.device(), take_numbers(std::nullopt, input, kUnroll32), 1 - p,
                        std::int64_t{vector_size(input)}, input, output, mask);
  return {output, mask};
}

/// The same with the probability of keeping an element, and a mask of bytes.
std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& self, double keep,
                                                 Generator generator) {
  expect_floating("fused_dropout", self);
  auto output = at::empty_like(self);
  auto mask = at::empty_like(self, self.options().dtype(at::kByte));
  if (self.numel() > 0) {
    fused_dropout_kernel.launch(self.device(), take_numbers(generator, self, kUnroll32), keep,
                                std::int64_t{vector_size(self)}, self, output, mask);
  }
  return {output, mask};
}

at::Tensor masked_scale(const at::Tensor& self, const at::Tensor& mask, double scale) {
  expect_floating("masked_scale", self);
  TORCH_CHECK(mask.scalar_type() == at::kByte, "mask should be torch.uint8 dtype");
  TORCH_CHECK(mask.sizes() == self.sizes(), "_masked_scale: expected a mask of shape ",
              self.sizes(), " (got ", mask.sizes(), ")");
  auto out = at::empty_like(self);
  scale_kernel.launch(self.device(), self, mask, scale, out);
  return out;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) {
  m.impl("native_dropout", TORCH_FN(native_dropout));
  m.impl("_fused_dropout", TORCH_FN(fused_dropout));
  m.impl("_masked_scale", TORCH_FN(masked_scale));
}

}  // namespace openreg::ops
