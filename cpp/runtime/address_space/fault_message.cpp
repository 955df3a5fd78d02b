#include "runtime/address_space/fault_message.h"

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/address_space/address_space.h"
#include "runtime/address_space/signal_handler.h"
#include "runtime/address_space/signal_text.h"
#include "runtime/address_space/single_step.h"

namespace openreg {

namespace {

void explain_fault(int, siginfo_t* info, void* context);
SignalHandler g_faults(SIGSEGV, &explain_fault);
std::atomic<bool> g_explains_windows{false};
std::atomic<FaultJudge> g_judge{nullptr};

void print_message(int device, const void* address) noexcept {
  SignalText line;
  line.text("openreg: the host touched device memory of openreg:")
      .number(static_cast<std::uintptr_t>(device));
  line.text(" (address 0x").number(reinterpret_cast<std::uintptr_t>(address), 16);
  line.text("); copy it with .cpu()").write_to_stderr();
}

FaultAccess access_of([[maybe_unused]] const void* context) noexcept {
#if defined(__x86_64__)
  constexpr greg_t kWritten = 2;  // of the error code of a page fault
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  return registers[REG_ERR] & kWritten ? FaultAccess::kWrite : FaultAccess::kRead;
#elif defined(__aarch64__)
  constexpr std::uint32_t kSyndrome = 0x45535201;  // ESR_MAGIC: then a header and the register
  constexpr std::uint64_t kWritten = 1 << 6;       // WnR of a data abort
  const auto& reserved = static_cast<const ucontext_t*>(context)->uc_mcontext.__reserved;
  for (std::size_t at = 0; at + 16 <= sizeof reserved;) {
    std::uint32_t header[2];  // magic, size
    std::memcpy(header, reserved + at, sizeof header);
    if (header[0] == 0 || header[1] == 0) break;
    if (header[0] == kSyndrome) {
      std::uint64_t syndrome = 0;
      std::memcpy(&syndrome, reserved + at + sizeof header, sizeof syndrome);
      return syndrome & kWritten ? FaultAccess::kWrite : FaultAccess::kRead;
    }
    at += header[1];
  }
  return FaultAccess::kUnknown;
#else
  return FaultAccess::kUnknown;
#endif
}

FaultVerdict judge(const void* address, const void* context) noexcept {
  const auto judge = g_judge.load(std::memory_order_acquire);
  return judge == nullptr ? FaultVerdict::kUnknown : judge(address, access_of(context));
}

int device_with(const void* address) noexcept {
  const AddressSpace* const space = AddressSpace::get_if_reserved();
  return space == nullptr || !g_explains_windows ? -1 : space->device_of(address);
}

void explain_fault(int, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool sent = info->si_code <= 0;  // by kill(): then si_addr is meaningless
  const auto verdict = sent ? FaultVerdict::kUnknown : judge(info->si_addr, context);
  const int device = sent || verdict != FaultVerdict::kUnknown ? -1 : device_with(info->si_addr);
  if (device >= 0) print_message(device, info->si_addr);
  if (device >= 0 || verdict == FaultVerdict::kFatal) {
    g_faults.restore_previous(sent);
  } else if (verdict == FaultVerdict::kUnknown) {
    g_faults.call_previous(info, context, sent);
  } else if (verdict == FaultVerdict::kGoOnce) {
    begin_single_step(context, info->si_addr);
  }
  errno = saved_errno;
}

}  // namespace

void install_fault_message() {
  if (!kFaultMessageAvailable) return;
  g_explains_windows = true;
  g_faults.install();
}

void judge_faults_by(FaultJudge judge, AfterFault after) {
  if (!kFaultMessageAvailable) return;
  prepare_single_steps(after);
  g_judge.store(judge, std::memory_order_release);
  g_faults.install();
}

}  // namespace openreg
