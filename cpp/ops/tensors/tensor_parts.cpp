#include "ops/tensors/tensor_parts.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <utility>

#include "base/device_name.h"

namespace openreg::ops {

namespace {

const at::PerChannelAffineQuantizer* quantizer_by_channels(const at::Tensor& tensor) {
  if (!tensor.is_quantized()) return nullptr;
  return dynamic_cast<at::PerChannelAffineQuantizer*>(
      at::get_qtensorimpl(tensor)->quantizer().get());
}

at::QuantizerPtr quantizer_of(const at::Tensor& like, const TensorParts& parts) {
  const auto* by_channels = quantizer_by_channels(like);
  if (by_channels == nullptr) return at::get_qtensorimpl(like)->quantizer();
  return at::make_per_channel_affine_quantizer(parts[0], parts[1], by_channels->axis(),
                                               by_channels->scalar_type());
}

c10::DispatchKeySet keys(c10::DispatchKey functionality, c10::BackendComponent backend) {
  return c10::DispatchKeySet(functionality) | c10::DispatchKeySet(backend);
}

at::Tensor rebuild_coo(const at::Tensor& like, const TensorParts& parts,
                       c10::BackendComponent backend) {
  const c10::DeviceGuard guard(parts.back().device());  // new ones are on the current device
  auto tensor = at::detail::make_tensor<at::SparseTensorImpl>(
      keys(c10::DispatchKey::Sparse, backend), like.dtype());
  take_over(tensor, like, parts);
  return tensor;
}

at::Tensor rebuild_compressed(const at::Tensor& like, const TensorParts& parts,
                              c10::BackendComponent backend) {
  auto tensor = at::detail::make_tensor<at::SparseCsrTensorImpl>(
      keys(c10::DispatchKey::SparseCsr, backend), parts.back().device(), like.layout(),
      like.dtype());
  take_over(tensor, like, parts);
  return tensor;
}

at::Tensor rebuild_strided(const at::Tensor& like, c10::Storage storage, const TensorParts& parts,
                           c10::BackendComponent backend) {
  auto tensor = like.is_quantized()
                    ? at::detail::make_tensor<at::QTensorImpl>(
                          std::move(storage), keys(c10::DispatchKey::Quantized, backend),
                          like.dtype(), quantizer_of(like, parts))
                    : at::detail::make_tensor<c10::TensorImpl>(
                          std::move(storage), keys(c10::DispatchKey::Dense, backend), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.is_conj()) impl->_set_conj(true);
  if (like.is_neg()) impl->_set_neg(true);
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

/// The sizes and offsets of a nested tensor lie on the CPU, whatever its device.
at::Tensor rebuild_nested(const at::Tensor& like, c10::Storage storage,
                          c10::BackendComponent backend) {
  const auto& nested = *at::native::get_nested_tensor_impl(like);
  const auto buffer =
      rebuild_strided(nested.get_unsafe_storage_as_tensor(), std::move(storage), {}, backend);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      buffer, nested.get_nested_sizes(), nested.get_nested_strides(), nested.get_storage_offsets());
}

}  // namespace

TensorParts parts_of(const at::Tensor& tensor) {
  if (tensor.is_sparse()) {
    const auto& sparse = *at::sparse::get_sparse_impl(tensor);
    return {sparse.indices(), sparse.values()};
  }
  if (at::sparse_csr::is_sparse_compressed(tensor)) {
    const auto& sparse = *at::sparse_csr::get_sparse_csr_impl(tensor);
    return {sparse.compressed_indices(), sparse.plain_indices(), sparse.values()};
  }
  if (const auto* by_channels = quantizer_by_channels(tensor)) {
    return {by_channels->scales(), by_channels->zero_points()};
  }
  return {};
}

at::Tensor rebuild(const at::Tensor& like, c10::Storage storage, const TensorParts& parts,
                   c10::BackendComponent backend) {
  if (like.is_sparse()) return rebuild_coo(like, parts, backend);
  if (at::sparse_csr::is_sparse_compressed(like)) return rebuild_compressed(like, parts, backend);
  TORCH_CHECK_NOT_IMPLEMENTED(
      like.layout() == at::kStrided, "openreg: this operator makes a tensor of a layout that ",
      kDeviceName, " does not have (got ", like.layout(), "); call it on the CPU");
  if (like.is_nested()) return rebuild_nested(like, std::move(storage), backend);
  return rebuild_strided(like, std::move(storage), parts, backend);
}

void take_over(const at::Tensor& tensor, const at::Tensor& like, const TensorParts& parts) {
  const auto own = parts_of(tensor);
  const bool same_parts =
      std::equal(own.begin(), own.end(), parts.begin(), parts.end(),
                 [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
  if (tensor.is_sparse()) {
    auto& sparse = *at::sparse::get_sparse_impl(tensor);
    const auto& changed = *at::sparse::get_sparse_impl(like);
    if (!same_parts || tensor.sizes() != like.sizes()) {
      sparse.raw_resize_(changed.sparse_dim(), changed.dense_dim(), like.sizes());
      sparse.set_indices_and_values_unsafe(parts[0], parts[1]);
    }
    sparse.set_coalesced(changed.coalesced());
  } else if (at::sparse_csr::is_sparse_compressed(tensor)) {
    if (same_parts && tensor.sizes() == like.sizes()) return;
    at::sparse_csr::get_sparse_csr_impl(tensor)->set_member_tensors(parts[0], parts[1], parts[2],
                                                                    like.sizes());
  } else if (!tensor.is_nested()) {
    // A quantizer by channels is made again only if the kernel has set another one.
    if (tensor.is_quantized() && !(same_parts && !parts.empty()))
      at::get_qtensorimpl(tensor)->set_quantizer_(quantizer_of(like, parts));
    const bool same = tensor.sizes() == like.sizes() && tensor.strides() == like.strides() &&
                      tensor.storage_offset() == like.storage_offset();
    if (same) return;
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                        like.storage_offset());
  }
}

}  // namespace openreg::ops
