#pragma once

#include <cstdint>

namespace openreg {

/// Whether the functions below do anything in this build: a sanitizer keeps SIGSEGV for its own
/// reports.
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
/// the process as usual. So does a fault of a thread that runs a command, unless the command can
/// fail instead (device_work.h). Every other SIGSEGV goes to the previously installed handler.
/// Called once, by AddressSpace, when there are windows.
void install_fault_message();
/// Puts the handler of install_fault_message() in front of any that was installed since. Thread
/// safe.
void keep_fault_message_in_front();

/// What the instruction that faulted did, as far as the processor tells.
enum class FaultAccess : std::uint8_t { kUnknown, kRead, kWrite, kExecute };

/// What a fault handler has decided.
enum class FaultResult : std::uint8_t {
  kUnhandled,  ///< nothing is known about this address: the fault goes to the others
  kRetry,      ///< the instruction is executed again
  kFatal,      ///< it has been explained on stderr, and goes to the others, which end the process
};

/// Handles a fault of data on a page that is there. Called by the signal handler, so it must be
/// async-signal-safe.
using FaultHandler = FaultResult (*)(const void* address, FaultAccess access) noexcept;

/// From now on, `handler` is called for each such fault. There is one in a process. A further call
/// puts the signal handler in front of any that was installed in the meantime. False: `handler` may
/// not see each fault, because the program has installed too many different signal handlers, or
/// because of a sanitizer. Thread safe.
bool set_fault_handler(FaultHandler handler);

/// Returns whether a write that faulted at `address` is to be tried again. Async-signal-safe.
using WriteFaultHandler = bool (*)(const void* address) noexcept;

/// From now on, `handler` is called for a fault of a write before all else, in all builds. A
/// further call puts the signal handler in front of any that was installed in the meantime. Thread
/// safe.
void set_write_fault_handler(WriteFaultHandler handler);

}  // namespace openreg
