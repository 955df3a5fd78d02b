#include "launch.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "driver/memory.h"

namespace torch_acme {

at::Tensor for_command(const at::Tensor& tensor, bool written) {
  // The thread that runs the command is not in inference mode, and could not write such a tensor.
  const c10::InferenceMode mode(false);
  void* const data =
      written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
  auto host = at::from_blob(is_ours(tensor) ? driver::bytes_of(data) : data, tensor.sizes(),
                            tensor.strides(), at::TensorOptions(tensor.scalar_type()));
  host._set_conj(tensor.is_conj());
  host._set_neg(tensor.is_neg());
  return host;
}

}  // namespace torch_acme
