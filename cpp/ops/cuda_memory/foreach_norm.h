#pragma once

namespace openreg::ops::cuda_memory {

/// Registers _foreach_norm, which PyTorch composes of norms of single tensors, with the buffer of
/// CUDA's kernel for the whole list (native/cuda/ForeachReduceOp.cu).
void register_foreach_norm();

}  // namespace openreg::ops::cuda_memory
