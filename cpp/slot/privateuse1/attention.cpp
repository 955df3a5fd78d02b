#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>

#include "slot.h"

namespace at::native {

// scaled_dot_product_attention lets the backend choose the implementation: the CPU's flash path,
// forward and backward, under the same conditions as on the CPU.
OPENREG_REGISTER_DISPATCH(_fused_sdp_choice_stub, &_fused_sdp_choice_cpp)

}  // namespace at::native
