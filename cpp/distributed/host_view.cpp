#include "distributed/host_view.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "address_space/address_space.h"

namespace openreg::distributed {

namespace {

at::Tensor view(const at::Tensor& tensor, at::IntArrayRef sizes, c10::ScalarType dtype) {
  TORCH_INTERNAL_ASSERT(tensor.is_contiguous());
  // Gloo needs an address even if there are no elements.
  static std::byte nothing{};
  void* const data =
      tensor.numel() == 0 ? &nothing : AddressSpace::get().aperture(tensor.const_data_ptr());
  // Gloo's threads, which write the tensor, are not in inference mode, even if the caller is.
  const c10::InferenceMode no_inference_tensor(false);
  return at::from_blob(data, sizes, at::TensorOptions(dtype));
}

}  // namespace

at::Tensor host_view(const at::Tensor& tensor) {
  return view(tensor, tensor.sizes(), tensor.scalar_type());
}

at::Tensor host_bytes(const at::Tensor& tensor) {
  return view(tensor, {static_cast<std::int64_t>(tensor.nbytes())}, at::kByte);
}

}  // namespace openreg::distributed
