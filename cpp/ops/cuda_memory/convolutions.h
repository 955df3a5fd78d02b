#pragma once

#include <cstdint>

namespace openreg::ops::cuda_memory {

/// Upper bounds of the workspaces that cuDNN's convolutions take without computing; the lower bound
/// is none. A transform (Winograd's, Fourier's) may exceed them.
struct ConvolutionUse {
  std::uint64_t largest = 0;  ///< bytes of one: copies of all its tensors, in float32 or wider
  std::uint64_t peak = 0;     ///< the most that is allocated with one
};

/// Since the start, or the last reset. Thread safe.
ConvolutionUse convolution_use(int device);
void reset_convolution_use();

}  // namespace openreg::ops::cuda_memory
