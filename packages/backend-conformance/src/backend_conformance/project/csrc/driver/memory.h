#pragma once

#include <cstddef>

// A stand-in for the driver of a device, without PyTorch: memory and streams, on the CPU. To bring
// up real hardware, replace the folder `driver` by the calls of its driver, and `launch.h` and
// `kernels.cpp` by its kernels.
namespace torch_acme::driver {

constexpr int kDevices = 2;
constexpr std::size_t kBytesPerDevice = std::size_t{8} << 30;  // addresses; pages come when used

/// Memory of a device, or nullptr if there is not enough. Nothing can access these addresses: a
/// host that tries gets a segmentation fault, as with a real device. Commands translate them.
void* allocate(int device, std::size_t bytes);
void free(void* memory);

/// Where the bytes at a device address really are. For commands that run on a stream, only.
void* bytes_of(const void* address);
/// The device that an address belongs to, or -1.
int device_of(const void* address) noexcept;
/// Bytes of the device that allocate() has not given away.
std::size_t free_bytes(int device);

}  // namespace torch_acme::driver
