#pragma once

namespace openreg::ops::cuda_memory {

/// The GPU whose memory is reproduced, as far as what CUDA allocates depends on it.
struct Gpu {
  // By default an A100, of which most published figures are.
  int major = 8;  ///< of the compute capability
  int minor = 0;
  int multiprocessors = 108;
  int threads_per_multiprocessor = 2048;

  /// The compute capability as one number: 90.
  int capability() const noexcept { return major * 10 + minor; }
};

/// The GPU that all devices stand for. Thread safe.
Gpu gpu() noexcept;
/// To be called before the device computes: what is allocated already stays.
void set_gpu(const Gpu& gpu) noexcept;

/// Whether operators allocate what CUDA's do: without computing, unless it is switched off, which
/// tests do that compare with a device that computes. Throws as settings() does.
bool is_reproduced();
void reproduce(bool enabled) noexcept;

}  // namespace openreg::ops::cuda_memory
