#pragma once

#include <cstddef>
#include <memory>

namespace openreg::ops {

/// Whether stand-ins lie in guarded memory: if this library is built with the address sanitizer.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kGuardsStandIns = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
inline constexpr bool kGuardsStandIns = true;
#else
inline constexpr bool kGuardsStandIns = false;
#endif
#else
inline constexpr bool kGuardsStandIns = false;
#endif

/// Zeroed memory that shows what a kernel does beyond it, although no sanitizer sees PyTorch's
/// kernels. It ends at a page that cannot be accessed, or less than `alignment`, a power of two,
/// before it: an access to that page is a SIGSEGV. A write to the bytes before or after the memory
/// is found when the memory is freed, which then ends the process with a message and SIGABRT.
/// Throws std::bad_alloc.
std::shared_ptr<void> make_guarded_memory(std::size_t bytes, std::size_t alignment);

}  // namespace openreg::ops
