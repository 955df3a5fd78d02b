// scaled_dot_product_attention asks the backend which way to go. The flash path of the CPU serves,
// forward and backward, under the conditions that it has on the CPU; its operators come to the
// fallback.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &_fused_sdp_choice_cpp)

}  // namespace at::native
