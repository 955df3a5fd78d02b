#include "ops/launch/cost.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>

namespace openreg::ops {

// Note [Costs]
//
// The duration of a call determines whether several cores share it: Note [Teams] in
// backend/compute_threads.cpp, Note [Teams of hosts] in backend/thread_count_tuner.cpp. An error by
// a factor of two does no harm, so the duration is estimated from shapes: products by their
// multiplications and additions, everything else by the bytes that are read and written. The rates
// are those of one core of a server of 2023: half the rate of its vector units in a good matrix
// product, and a third of its rate for copies.
namespace {

constexpr double kFlopsPerNanosecond = 50;
constexpr double kBytesPerNanosecond = 4;
constexpr double kNanosecondsPerCall = 500;

double product_of(at::IntArrayRef sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), 1.0,
                         [](double a, std::int64_t b) { return a * static_cast<double>(b); });
}

/// The sizes of a call's tensors, followed by those of its results.
class Shapes {
 public:
  Shapes(const ArgumentWriter& arguments, std::span<const Geometry> results) {
    for (std::size_t i = 0; i < arguments.tensor_count(); ++i) sizes_.push_back(arguments.sizes(i));
    for (const auto& result : results) sizes_.push_back(result.sizes);
  }
  std::size_t count() const { return sizes_.size(); }
  at::IntArrayRef operator[](std::size_t i) const { return sizes_[i]; }
  double elements(std::size_t i) const { return product_of(sizes_[i]); }

 private:
  c10::SmallVector<at::IntArrayRef, 8> sizes_;
};

// The last three tensors are the two factors and the result; if both factors are one tensor, it
// occurs once.
double matrix_product(const Shapes& shapes) {
  const auto n = shapes.count();
  if (n < 2 || shapes[n >= 3 ? n - 3 : 0].empty()) return 0;
  return 2 * shapes.elements(n - 1) * static_cast<double>(shapes[n >= 3 ? n - 3 : 0].back());
}

// Each element of the result (or of its gradient) takes one filter of the weight.
double filters(const Shapes& shapes, std::size_t weight, std::size_t result) {
  if (shapes.count() <= std::max(weight, result) || shapes[weight].empty()) return 0;
  return 2 * shapes.elements(result) * shapes.elements(weight) /
         static_cast<double>(std::max<std::int64_t>(shapes[weight][0], 1));
}
double convolution(const Shapes& shapes) { return filters(shapes, 1, shapes.count() - 1); }
double convolution_backward(const Shapes& shapes) { return 2 * filters(shapes, 2, 0); }

// Each query with each key, twice.
double queries_and_keys(const Shapes& shapes, std::size_t query) {
  if (shapes.count() <= query + 1 || shapes[query + 1].size() < 3) return 0;
  return 4 * shapes.elements(query) * static_cast<double>(shapes[query + 1][2]);
}
double attention(const Shapes& shapes) { return queries_and_keys(shapes, 0); }
double attention_backward(const Shapes& shapes) { return 2.5 * queries_and_keys(shapes, 1); }

// Each step of the sequence with each element of the weights.
double recurrent(const Shapes& shapes) {
  if (shapes.count() == 0 || shapes[0].empty() || shapes[0].back() == 0) return 0;
  double weights = 0;
  for (std::size_t i = 1; i < shapes.count(); ++i)
    if (shapes[i].size() == 2) weights += shapes.elements(i);
  return 2 * shapes.elements(0) / static_cast<double>(shapes[0].back()) * weights;
}
double recurrent_backward(const Shapes& shapes) { return 2 * recurrent(shapes); }

struct FlopRule {
  std::string_view kernel;
  double (*flops)(const Shapes&);
};
constexpr auto kFlopRules = std::to_array<FlopRule>({
    {"aten::mm", &matrix_product},
    {"aten::addmm", &matrix_product},
    {"aten::_addmm_activation", &matrix_product},
    {"aten::bmm", &matrix_product},
    {"aten::baddbmm", &matrix_product},
    {"aten::convolution", &convolution},
    {"aten::convolution_backward", &convolution_backward},
    {"aten::lstm.input", &recurrent},
    {"aten::gru.input", &recurrent},
    {"aten::rnn_tanh.input", &recurrent},
    {"aten::rnn_relu.input", &recurrent},
    {"aten::mkldnn_rnn_layer", &recurrent},
    {"aten::mkldnn_rnn_layer_backward", &recurrent_backward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", &attention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", &attention_backward},
});

Cost cost_of_time(double nanoseconds) {
  nanoseconds = std::min<double>(nanoseconds + kNanosecondsPerCall, Cost::kMost);
  return {.nanoseconds = static_cast<std::uint32_t>(nanoseconds),
          .reproducible = at::globalContext().deterministicAlgorithms()};
}

// Kernels that share sums among threads even if they are short, although CUDA's results are the
// same in every run. Other kernels are made reproducible by torch.use_deterministic_algorithms().
constexpr auto kSharedSums = std::to_array<std::string_view>({"aten::native_layer_norm_backward"});

}  // namespace

Cost cost_of(const char* kernel, const ArgumentWriter& arguments,
             std::span<const Geometry> results) {
  auto bytes = static_cast<double>(arguments.bytes_touched());
  for (const auto& result : results) bytes += static_cast<double>(result.nbytes);
  double time = bytes / kBytesPerNanosecond;
  const auto* const rule =
      std::find_if(kFlopRules.begin(), kFlopRules.end(),
                   [&](const FlopRule& each) { return each.kernel == kernel; });
  if (rule != kFlopRules.end())
    time = std::max(time, rule->flops(Shapes(arguments, results)) / kFlopsPerNanosecond);
  auto cost = cost_of_time(time);
  cost.reproducible |= std::ranges::find(kSharedSums, kernel) != kSharedSums.end();
  return cost;
}

Cost cost_of_bytes(double bytes) { return cost_of_time(bytes / kBytesPerNanosecond); }

}  // namespace openreg::ops
