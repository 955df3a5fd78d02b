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
/// Puts the handler in front of any that was installed since. Thread safe.
void keep_fault_message_in_front();

/// What the instruction that faulted did, as far as the processor tells.
enum class FaultAccess : std::uint8_t { kUnknown, kRead, kWrite, kExecute };

enum class FaultVerdict : std::uint8_t {
  kUnknown,  ///< nothing is known about this address: the fault goes to the others
  kGoOn,     ///< the instruction is executed again
  kFatal,    ///< it has been explained on stderr, and goes to the others, which end the process
};

/// Judges a fault of data on a page that is there. Called by the signal handler, so it must be
/// async-signal-safe.
using FaultJudge = FaultVerdict (*)(const void* address, FaultAccess access) noexcept;

/// From now on, `judge` is asked about each such fault. There is one judge in a process. A further
/// call puts the signal handler in front of any that was installed in the meantime. False: the
/// judge may not see each fault, because the program has installed too many different handlers, or
/// because of a sanitizer. Thread safe.
bool judge_faults_by(FaultJudge judge);

/// Whether a write that faulted at `address` is to be tried again. Async-signal-safe.
using RetryWrite = bool (*)(const void* address) noexcept;

/// From now on, `retry` is asked first, in all builds. A further call puts the signal handler in
/// front of any that was installed in the meantime. Thread safe.
void retry_writes_by(RetryWrite retry);

}  // namespace openreg
