#pragma once

#include <string>
#include <unordered_map>

namespace at {
class Tensor;
}

namespace openreg::backend {

/// Named flags that a backend attaches to a tensor and that torch.save keeps: PyTorch's "backend
/// meta". openreg's own tensors have none; flags that users attach
/// (torch._utils.set_tensor_metadata) are kept on the device and in checkpoints.
using TensorMetadata = std::unordered_map<std::string, bool>;

/// Adds the tensor's flags to `metadata`, in which existing entries stay.
void get_tensor_metadata(const at::Tensor& tensor, TensorMetadata& metadata);
/// Replaces the tensor's flags by those of `metadata`, which are moved out of it.
void set_tensor_metadata(const at::Tensor& tensor, TensorMetadata& metadata);

}  // namespace openreg::backend
