#include "ops/tiers/shape_rules.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>

#include "backend/clean_state.h"

namespace openreg::ops {

// Note [Shape rules]
//
// Probing a kernel for new shapes costs as much as running it (Note [Tier 2]). For the operators
// that networks consist of, it is known which sizes are free: batches, lengths, the extent of
// images. A rule names the free sizes, and a call with small ones is probed instead. It is probed
// only once, because all calls that differ only in free sizes have the same small call. The
// kernel's result for the small call holds for all of them: whether it takes the arguments, in
// which order the strides of its results are, and which of its allocations they come from. Equal
// sizes stay equal, and sizes 0 and 1 stay the same. If the results of the small call do not follow
// the rule, the call itself is probed.
namespace {

using Arguments = BoxedOperator::Arguments;
using Size = SmallerCall::Size;

/// Collects what a rule says: which sizes of arguments and results are the same free size.
class Free {
 public:
  explicit Free(Arguments arguments) : arguments_(arguments) {}

  /// Dimension `dim` of the tensor `argument` is the free size `name`; it must equal the others of
  /// that name.
  void argument(std::size_t argument, std::int64_t dim, int name) {
    const auto size = tensor(argument).size(dim);
    if (size <= 1) return;
    const auto [entry, added] = sizes_.try_emplace(name, Size{small_number(size), size});
    if (!added && entry->second.full != size) fits_ = false;
    in_arguments_.push_back({argument, static_cast<std::size_t>(dim), entry->second});
  }
  /// The same for sizes that follow from others by a formula.
  void argument(std::size_t argument, std::int64_t dim, Size size) {
    if (tensor(argument).size(dim) != size.full) fits_ = false;
    in_arguments_.push_back({argument, static_cast<std::size_t>(dim), size});
  }
  void result(std::size_t result, std::size_t dim, int name) {
    const auto entry = sizes_.find(name);
    if (entry != sizes_.end()) in_results_.push_back({result, dim, entry->second});
  }
  void result(std::size_t result, std::size_t dim, Size size) {
    in_results_.push_back({result, dim, size});
  }

  const at::Tensor& tensor(std::size_t argument) const { return arguments_[argument].toTensor(); }
  bool fits() const { return fits_; }

  struct Occurrence {
    std::size_t of;  // an argument, or a result
    std::size_t dim;
    Size size;
  };
  const std::vector<Occurrence>& in_arguments() const { return in_arguments_; }
  const std::vector<Occurrence>& in_results() const { return in_results_; }

 private:
  // A prime for each free size: small sizes are equal only if the full ones are.
  std::int64_t small_number(std::int64_t full) {
    for (const auto& [name, size] : sizes_) {
      if (size.full == full) return size.small;
    }
    static constexpr std::array<std::int64_t, 8> kPrimes{2, 3, 5, 7, 11, 13, 17, 19};
    fits_ &= sizes_.size() < kPrimes.size();
    return kPrimes[std::min(sizes_.size(), kPrimes.size() - 1)];
  }

  Arguments arguments_;
  std::map<int, Size> sizes_;
  std::vector<Occurrence> in_arguments_;
  std::vector<Occurrence> in_results_;
  bool fits_ = true;
};

bool is_tensor(Arguments arguments, std::size_t i, std::int64_t least_dim) {
  return arguments[i].isTensor() && arguments[i].toTensor().defined() &&
         arguments[i].toTensor().dim() >= least_dim;
}

// --- The rules; false if the arguments are unusual ---

/// Free: all dimensions except the channels, in arguments [0, tensors) and in the first result.
template <std::size_t tensors>
bool batch_norm(Arguments arguments, Free& free) {
  for (std::size_t i = 0; i < tensors; ++i) {
    if (!is_tensor(arguments, i, 2)) return false;
    for (std::int64_t d = 0; d < free.tensor(i).dim(); ++d) {
      if (d == 1) continue;
      free.argument(i, d, static_cast<int>(d));
      if (i == 0) free.result(0, static_cast<std::size_t>(d), static_cast<int>(d));
    }
  }
  return true;
}

/// (grad_out, input, normalized_shape, mean, rstd, ...). Free: all dimensions that are not
/// normalised.
bool layer_norm_backward(Arguments arguments, Free& free) {
  if (!is_tensor(arguments, 1, 1) || !arguments[2].isIntList()) return false;
  const auto rows =
      free.tensor(1).dim() - static_cast<std::int64_t>(arguments[2].toIntVector().size());
  for (const std::size_t i : {0, 1, 3, 4}) {
    if (!is_tensor(arguments, i, rows)) return false;
    for (std::int64_t d = 0; d < rows; ++d) free.argument(i, d, static_cast<int>(d));
  }
  for (std::int64_t d = 0; d < rows; ++d)
    free.result(0, static_cast<std::size_t>(d), static_cast<int>(d));
  return true;
}

/// (grad, indices, ...). Free: all dimensions of the indices.
bool embedding_backward(Arguments arguments, Free& free) {
  if (!is_tensor(arguments, 1, 0) || !is_tensor(arguments, 0, free.tensor(1).dim())) return false;
  for (std::int64_t d = 0; d < free.tensor(1).dim(); ++d) {
    free.argument(0, d, static_cast<int>(d));
    free.argument(1, d, static_cast<int>(d));
  }
  return true;
}

enum Attention : int { kBatch, kQueries, kKeys };

/// [batch, heads, length, ...]
bool attention_tensor(Arguments arguments, Free& free, std::size_t i, Attention length) {
  if (!is_tensor(arguments, i, 3)) return false;
  free.argument(i, 0, kBatch);
  free.argument(i, 2, length);
  return true;
}

bool attention_mask(Arguments arguments, Free& free, std::size_t i) {
  const bool none =
      arguments[i].isNone() || (arguments[i].isTensor() && !arguments[i].toTensor().defined());
  if (none) return true;
  if (!is_tensor(arguments, i, 2)) return false;
  const auto dim = free.tensor(i).dim();
  if (dim == 4) free.argument(i, 0, kBatch);
  free.argument(i, dim - 2, kQueries);
  free.argument(i, dim - 1, kKeys);
  return true;
}

/// (query, key, value, dropout, causal, mask, scale)
bool attention(Arguments arguments, Free& free) {
  if (!attention_tensor(arguments, free, 0, kQueries) ||
      !attention_tensor(arguments, free, 1, kKeys) ||
      !attention_tensor(arguments, free, 2, kKeys) || !attention_mask(arguments, free, 5))
    return false;
  for (const std::size_t result : {0, 1}) {
    free.result(result, 0, kBatch);
    free.result(result, 2, kQueries);
  }
  return true;
}

/// (grad_out, query, key, value, out, logsumexp, dropout, causal, mask, scale)
bool attention_backward(Arguments arguments, Free& free) {
  for (const std::size_t i : {0, 1, 4, 5}) {
    if (!attention_tensor(arguments, free, i, kQueries)) return false;
  }
  for (const std::size_t i : {2, 3}) {
    if (!attention_tensor(arguments, free, i, kKeys)) return false;
  }
  if (!attention_mask(arguments, free, 8)) return false;
  for (const std::size_t result : {0, 1, 2}) {
    free.result(result, 0, kBatch);
    free.result(result, 2, result == 0 ? kQueries : kKeys);
  }
  return true;
}

/// One dimension of a convolution: the size of the result, and a small size that suffices.
struct ConvolvedDim {
  std::int64_t kernel, stride, padding, dilation, output_padding;
  bool transposed;

  std::int64_t result(std::int64_t size) const {
    const auto extent = dilation * (kernel - 1) + 1;
    return transposed ? (size - 1) * stride - 2 * padding + extent + output_padding
                      : (size + 2 * padding - extent) / stride + 1;
  }
  std::int64_t small(std::int64_t size) const {
    const auto extent = dilation * (kernel - 1) + 1;
    // Two elements of the result; for a transposed convolution two elements of the input, and more
    // of the result.
    const auto least = transposed ? (2 * padding) / stride + 2
                                  : std::max<std::int64_t>(extent - 2 * padding + stride, 2);
    return std::min(size, least);
  }
};

/// Free: the batch and the extent of the images. `input`: the position of input and weight;
/// `lists`: the position of stride, padding, dilation, transposed and output padding.
bool images(Arguments arguments, Free& free, std::size_t input, std::size_t lists,
            std::optional<std::size_t> gradient) {
  const auto weight = input + 1;
  if (!is_tensor(arguments, input, 3) || !is_tensor(arguments, weight, 3)) return false;
  const auto dims = free.tensor(input).dim();
  if (free.tensor(weight).dim() != dims) return false;
  if (gradient && (!is_tensor(arguments, *gradient, 3) || free.tensor(*gradient).dim() != dims))
    return false;
  for (const std::size_t i : {0, 1, 2, 4}) {
    if (!arguments[lists + i].isIntList() ||
        arguments[lists + i].toIntList().size() != static_cast<std::size_t>(dims - 2))
      return false;
  }
  constexpr int kImages = 0;
  free.argument(input, 0, kImages);
  if (gradient) free.argument(*gradient, 0, kImages);
  free.result(0, 0, kImages);
  for (std::int64_t d = 2; d < dims; ++d) {
    const auto of = [&](std::size_t i) {
      return arguments[lists + i].toIntList().get(static_cast<std::size_t>(d - 2));
    };
    const ConvolvedDim dim{free.tensor(weight).size(d),  of(0), of(1), of(2), of(4),
                           arguments[lists + 3].toBool()};
    const auto full = free.tensor(input).size(d);
    if (dim.stride < 1 || dim.kernel < 1 || dim.dilation < 1 || dim.padding < 0) return false;
    const Size in{dim.small(full), full};
    const Size out{dim.result(in.small), dim.result(in.full)};
    if (in.small < 1 || out.small < 1 || out.full < 1) return false;
    free.argument(input, d, in);
    if (gradient) free.argument(*gradient, d, out);
    free.result(0, static_cast<std::size_t>(d), gradient ? in : out);
  }
  return true;
}

/// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
bool convolution(Arguments arguments, Free& free) {
  return images(arguments, free, 0, 3, std::nullopt);
}

/// (grad_output, input, weight, bias_sizes, stride, ..., groups, output_mask)
bool convolution_backward(Arguments arguments, Free& free) {
  return images(arguments, free, 1, 4, 0);
}

struct ShapeRule {
  std::string_view op;
  bool (*apply)(Arguments, Free&);
};
constexpr auto kShapeRules = std::to_array<ShapeRule>({
    {"aten::convolution", &convolution},
    {"aten::convolution_backward", &convolution_backward},
    {"aten::native_batch_norm", &batch_norm<1>},
    {"aten::_native_batch_norm_legit", &batch_norm<1>},
    {"aten::_native_batch_norm_legit.no_stats", &batch_norm<1>},
    {"aten::native_batch_norm_backward", &batch_norm<2>},
    {"aten::native_layer_norm_backward", &layer_norm_backward},
    {"aten::embedding_dense_backward", &embedding_backward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", &attention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", &attention_backward},
});

/// Strides for the sizes `small`, in the same order as `strides`, and 0 or with gaps in the same
/// dimensions. Empty if elements overlap in another way, or if there are none.
std::vector<std::int64_t> strides_like(at::IntArrayRef sizes, at::IntArrayRef strides,
                                       at::IntArrayRef small) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return strides[a] != strides[b] ? strides[a] < strides[b] : sizes[a] < sizes[b];
  });
  std::vector<std::int64_t> result(sizes.size());
  std::int64_t dense = 1;
  std::int64_t next = 1;
  for (const auto d : order) {
    if (sizes[d] > 1 && strides[d] == 0) continue;  // expanded: stays so
    if (sizes[d] == 0 || (sizes[d] > 1 && strides[d] < dense)) return {};
    if (sizes[d] > 1 && strides[d] > dense) next *= 2;
    result[d] = next;
    if (sizes[d] == 1) continue;
    dense = strides[d] * sizes[d];
    next *= small[d];
  }
  return result;
}

}  // namespace

std::optional<SmallerCall> SmallerCall::of(const BoxedOperator& op, Arguments arguments) {
  const std::string_view name = op.kernel().name();
  const auto* const rule = std::find_if(kShapeRules.begin(), kShapeRules.end(),
                                        [&](const ShapeRule& each) { return each.op == name; });
  if (rule == kShapeRules.end()) return std::nullopt;
  Free free(arguments);
  if (!rule->apply(arguments, free) || !free.fits()) return std::nullopt;

  const backend::CleanState clean;  // the smaller tensors are not shown to profilers
  SmallerCall call;
  call.arguments_.assign(arguments.begin(), arguments.end());
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const auto& tensor = arguments[i].toTensor();
    if (tensor.is_conj() || tensor.is_neg()) return std::nullopt;
    auto sizes = tensor.sizes().vec();
    for (const auto& place : free.in_arguments()) {
      if (place.of == i) sizes[place.dim] = place.size.small;
    }
    const auto strides = strides_like(tensor.sizes(), tensor.strides(), sizes);
    if (strides.empty() && !sizes.empty()) return std::nullopt;
    call.arguments_[i] = at::empty_strided(sizes, strides, tensor.options().device(c10::kCPU));
  }
  for (const auto& place : free.in_results())
    call.results_.push_back({place.of, place.dim, place.size});
  return call;
}

bool SmallerCall::scale(c10::SmallVectorImpl<Geometry>& results) const {
  for (const auto& place : results_) {
    if (place.result >= results.size()) return false;
    auto& result = results[place.result];
    if (!result.defined) continue;
    if (place.dim >= result.sizes.size() || result.sizes[place.dim] != place.size.small)
      return false;
    result.sizes[place.dim] = place.size.full;
  }
  for (auto& result : results) {
    if (!result.defined) continue;
    const auto strides = at::infer_dense_strides(result.sizes, result.strides);
    result.strides.assign(strides.begin(), strides.end());
    result.nbytes = at::detail::computeStorageNbytes(result.sizes, result.strides,
                                                     c10::elementSize(result.dtype));
  }
  return true;
}

}  // namespace openreg::ops
