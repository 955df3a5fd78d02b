#include "distributed/arguments.h"

#include <ATen/MemoryOverlap.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

#include "backend/device.h"
#include "base/device_name.h"
#include "ops/wire/extent.h"

namespace openreg::distributed {

c10::Device device_of(const Collective& what, std::initializer_list<at::TensorList> lists) {
  std::optional<c10::Device> device;
  for (const auto& list : lists) {
    for (const auto& tensor : list) {
      TORCH_CHECK_VALUE(
          tensor.layout() == at::kStrided && tensor.device().type() == backend::kDeviceType,
          "openreg: ", what.kernel.name(), " takes dense ", kDeviceName, " tensors (got one on ",
          tensor.device(), " with layout ", tensor.layout(), ")");
      TORCH_CHECK_VALUE(!device || *device == tensor.device(), "openreg: ", what.kernel.name(),
                        " takes tensors of one device (got ", device.value_or(tensor.device()),
                        " and ", tensor.device(), ")");
      device = tensor.device();
      ops::expect_memory(tensor);
    }
  }
  TORCH_CHECK_VALUE(device, "openreg: ", what.kernel.name(), " takes tensors (got none)");
  return *device;
}

const at::Tensor& only(const Collective& what, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "openreg: ", what.kernel.name(),
                    " takes one tensor for each rank (got ", tensors.size(), ")");
  return tensors.front();
}

const std::vector<at::Tensor>& only(const Collective& what,
                                    const std::vector<std::vector<at::Tensor>>& lists) {
  TORCH_CHECK_VALUE(lists.size() == 1, "openreg: ", what.kernel.name(),
                    " takes one list of tensors for each rank (got ", lists.size(), ")");
  return lists.front();
}

std::int64_t bytes_in(at::TensorList tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

bool same_numel(at::TensorList tensors, const at::Tensor& like) {
  return std::ranges::all_of(
      tensors, [&](const at::Tensor& tensor) { return tensor.numel() == like.numel(); });
}

void expect_like(const Collective& what, at::TensorList tensors, const at::Tensor& like) {
  for (const auto& tensor : tensors) {
    expect_same_dtype(what, tensor, like);
    TORCH_CHECK_VALUE(tensor.sizes() == like.sizes(), "openreg: ", what.kernel.name(),
                      " takes tensors of one shape (got ", tensor.sizes(), " and ", like.sizes(),
                      ")");
  }
}

void expect_no_overlap(const at::Tensor& output) {
  TORCH_CHECK_VALUE(at::has_internal_overlap(output) != at::MemOverlap::Yes,
                    "openreg: a collective cannot write to a tensor whose elements share memory "
                    "(got sizes ",
                    output.sizes(), " and strides ", output.strides(), "); pass a clone");
}

void expect_one_for_each_rank(const Collective& what, std::size_t count, int size) {
  TORCH_CHECK_VALUE(count == static_cast<std::size_t>(size), "openreg: ", what.kernel.name(),
                    " takes a list with a tensor for each rank (got ", count, " tensors, expected ",
                    size, ")");
}

void expect_as_many(const Collective& what, at::TensorList outputs, at::TensorList inputs) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "openreg: ", what.kernel.name(),
                    " takes as many outputs as inputs (got ", outputs.size(), " and ",
                    inputs.size(), ")");
}

void expect_same_dtype(const Collective& what, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), "openreg: ", what.kernel.name(),
                   " takes tensors of one dtype (got ", a.scalar_type(), " and ", b.scalar_type(),
                   ")");
}

void expect_times(const Collective& what, const at::Tensor& larger, const at::Tensor& smaller,
                  int size) {
  expect_same_dtype(what, larger, smaller);
  TORCH_CHECK_VALUE(larger.numel() == smaller.numel() * size, "openreg: ", what.kernel.name(),
                    " takes one tensor of ", size, " times the size of the other (got ",
                    larger.sizes(), " and ", smaller.sizes(), ")");
}

}  // namespace openreg::distributed
