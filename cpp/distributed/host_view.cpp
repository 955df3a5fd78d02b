#include "distributed/host_view.h"

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include "address_space/address_space.h"
#include "backend/device.h"
#include "slot.h"

namespace openreg::distributed {

namespace {

bool is_on_device(const at::Tensor& tensor) {
  return tensor.device().type() == backend::kDeviceType;
}

void* host_address(const at::Tensor& tensor) {
  // Gloo needs an address even if there are no elements.
  static std::byte nothing{};
  if (tensor.numel() == 0) return &nothing;
  if (!is_on_device(tensor)) return tensor.mutable_data_ptr();
  return AddressSpace::get().aperture(tensor.const_data_ptr());
}

at::Tensor view(const at::Tensor& tensor, at::IntArrayRef sizes, c10::ScalarType dtype) {
  TORCH_INTERNAL_ASSERT(tensor.is_contiguous());
  // Gloo's threads, which write the tensor, are not in inference mode, even if the caller is.
  const c10::InferenceMode no_inference_tensor(false);
  return at::from_blob(host_address(tensor), sizes, at::TensorOptions(dtype));
}

}  // namespace

at::Tensor host_view(const at::Tensor& tensor) {
  return is_on_device(tensor) ? view(tensor, tensor.sizes(), tensor.scalar_type()) : tensor;
}

at::Tensor host_bytes(const at::Tensor& tensor) {
  const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
  if (tensor.is_meta()) return at::empty({bytes}, tensor.options().dtype(at::kByte));
  return view(tensor, {bytes}, at::kByte);
}

at::Tensor strided_host_view(const at::Tensor& tensor) {
  const c10::InferenceMode no_inference_tensor(false);
  auto seen = at::from_blob(host_address(tensor), tensor.sizes(), tensor.strides(),
                            at::TensorOptions(tensor.scalar_type()));
  if (tensor.is_conj()) seen = seen.conj();
  return tensor.is_neg() ? at::_neg_view(seen) : seen;
}

}  // namespace openreg::distributed
