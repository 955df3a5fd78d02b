// scaled_dot_product_attention lets the backend choose the implementation. The CPU's flash path is
// chosen, forward and backward, under the same conditions as on the CPU; its operators reach the
// fallback.
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &_fused_sdp_choice_cpp)

}  // namespace at::native
