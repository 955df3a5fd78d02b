#pragma once

namespace openreg {

/// Whether install_fault_message() does anything in this build: a sanitizer keeps SIGSEGV for its
/// own reports.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kFaultMessageAvailable = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
inline constexpr bool kFaultMessageAvailable = false;
#else
inline constexpr bool kFaultMessageAvailable = true;
#endif
#else
inline constexpr bool kFaultMessageAvailable = true;
#endif

/// From now on, a host access to a device's window prints one line to stderr before the fault ends
/// the process as usual. Every other SIGSEGV goes to the previously installed handler. Called once,
/// by AddressSpace, when there are windows.
void install_fault_message();

}  // namespace openreg
