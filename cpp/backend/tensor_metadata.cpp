#include "backend/tensor_metadata.h"

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <utility>

namespace openreg::backend {

namespace {

struct Flags final : c10::BackendMeta {
  explicit Flags(TensorMetadata values) : values(std::move(values)) {}
  const TensorMetadata values;  // shared by tensors that are shallow copies of each other: never
                                // changed, only replaced
};

}  // namespace

void get_tensor_metadata(const at::Tensor& tensor, TensorMetadata& metadata) {
  if (const auto* flags =
          dynamic_cast<const Flags*>(tensor.unsafeGetTensorImpl()->get_backend_meta())) {
    metadata.insert(flags->values.begin(), flags->values.end());
  }
}

void set_tensor_metadata(const at::Tensor& tensor, TensorMetadata& metadata) {
  auto flags = metadata.empty() ? c10::intrusive_ptr<Flags>()
                                : c10::make_intrusive<Flags>(std::move(metadata));
  tensor.unsafeGetTensorImpl()->set_backend_meta(std::move(flags));
}

}  // namespace openreg::backend
