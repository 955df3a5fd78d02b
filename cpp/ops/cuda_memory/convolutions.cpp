// Convolutions: bounds of cuDNN's workspaces, and the reduction to the gradient of a bias.
#include "ops/cuda_memory/convolutions.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "base/settings.h"
#include "memory/device_heap.h"
#include "memory/heap.h"
#include "ops/cuda_memory/formulas.h"

namespace openreg::ops::cuda_memory {

namespace {

std::mutex g_convolution_mutex;
std::array<ConvolutionUse, kMaxDevices> g_convolution_uses;  // under g_convolution_mutex

}  // namespace

// cuDNN chooses by internal heuristics, or by measurements on the GPU. Its implicit products need
// no workspace; those for tensor cores may convert all tensors to another layout, and accumulate in
// float32. If there is no memory for a workspace, PyTorch takes the next algorithm.
void note_convolution(const Call& call, Scratch& scratch) {
  std::uint64_t bytes = 0;
  for (const auto& tensor : call.tensors()) {
    if (!tensor.defined()) continue;
    const auto each = std::max<std::size_t>(tensor.itemsize(), sizeof(float));
    bytes += static_cast<std::uint64_t>(tensor.numel()) * each;
  }
  const int device = scratch.device();
  const auto allocated = memory::device_heap(device).locked([](memory::Heap& heap) {
    return static_cast<std::uint64_t>(heap.statistics().allocated_bytes.current());
  });
  const std::lock_guard lock(g_convolution_mutex);
  auto& use = g_convolution_uses.at(static_cast<std::size_t>(device));
  use.largest = std::max(use.largest, bytes);
  use.peak = std::max(use.peak, allocated + bytes);
}

void allocate_for_convolution_backward(const Call& call, Scratch& scratch) {
  note_convolution(call, scratch);
  if (call.results().size() != 3 || !call.results()[2].defined()) return;
  const auto& grad = call.tensor("grad_output");
  std::vector<std::int64_t> dims;
  for (std::int64_t dim = 0; dim < grad.dim(); ++dim)
    if (dim != 1) dims.push_back(dim);
  allocate_for_reduction_of(grad, call.results()[2], dims, "sum", scratch);
}

ConvolutionUse convolution_use(int device) {
  const std::lock_guard lock(g_convolution_mutex);
  return g_convolution_uses.at(static_cast<std::size_t>(device));
}

void reset_convolution_use() {
  const std::lock_guard lock(g_convolution_mutex);
  g_convolution_uses = {};
}

}  // namespace openreg::ops::cuda_memory
