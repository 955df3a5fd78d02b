#include "runtime/address_space/fault_message.h"

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/address_space/address_space.h"
#include "runtime/address_space/signal_handler.h"
#include "runtime/address_space/signal_text.h"
#include "runtime/device_name.h"

namespace openreg {

namespace {

void explain_fault(SignalHandler::Arrival& fault);
extern SignalHandler g_faults;
constinit SignalHandler g_faults(SIGSEGV, &explain_fault, kSignalEntries<g_faults>);
std::atomic<bool> g_explains_windows{false};
std::atomic<FaultJudge> g_judge{nullptr};
std::atomic<RetryWrite> g_retry_write{nullptr};

void print_message(int device, const void* address) noexcept {
  SignalText line;
  line.text("openreg: the host touched device memory of ")
      .text(kDeviceName)
      .text(":")
      .number(static_cast<std::uintptr_t>(device));
  line.text(" (address 0x").number(reinterpret_cast<std::uintptr_t>(address), 16);
  line.text("); copy it with .cpu()").write_to_stderr();
}

FaultAccess access_of([[maybe_unused]] const void* context) noexcept {
#if defined(__x86_64__)
  constexpr greg_t kWritten = 2;  // of the error code of a page fault
  constexpr greg_t kFetched = 16;
  const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
  if (registers[REG_ERR] & kFetched) return FaultAccess::kExecute;
  return registers[REG_ERR] & kWritten ? FaultAccess::kWrite : FaultAccess::kRead;
#elif defined(__aarch64__)
  constexpr std::uint32_t kSyndrome = 0x45535201;  // ESR_MAGIC: then a header and the register
  constexpr std::uint64_t kWritten = 1 << 6;       // WnR of a data abort
  const auto& thread = static_cast<const ucontext_t*>(context)->uc_mcontext;
  if (thread.pc == thread.fault_address) return FaultAccess::kExecute;
  const auto& reserved = thread.__reserved;
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

bool retries_write(const void* address, FaultAccess access) noexcept {
  const auto retry = g_retry_write.load(std::memory_order_acquire);
  return retry != nullptr && (access == FaultAccess::kWrite || access == FaultAccess::kUnknown) &&
         retry(address);
}

// A page that has the wrong protection can be opened, and only for data. All else would occur again
// without end: an instruction fetch, memory that is not there, protection keys.
FaultVerdict judge(const siginfo_t& info, const void* context) noexcept {
  const auto access = access_of(context);
  if (info.si_code != SEGV_ACCERR || access == FaultAccess::kExecute) return FaultVerdict::kUnknown;
  if (retries_write(info.si_addr, access)) return FaultVerdict::kGoOn;
  const auto judge = g_judge.load(std::memory_order_acquire);
  return judge == nullptr ? FaultVerdict::kUnknown : judge(info.si_addr, access);
}

int device_with(const void* address) noexcept {
  const AddressSpace* const space = AddressSpace::get_if_reserved();
  return space == nullptr || !g_explains_windows ? -1 : space->device_of(address);
}

void explain_fault(SignalHandler::Arrival& fault) {
  if (fault.sent()) return fault.call_previous();
  const void* const address = fault.info->si_addr;
  switch (judge(*fault.info, fault.context)) {
    case FaultVerdict::kGoOn:
      return;
    case FaultVerdict::kFatal:
      return fault.call_previous(/*occurs_again=*/false);  // another thread may mend it
    case FaultVerdict::kUnknown:
      break;
  }
  const int device = device_with(address);
  if (device < 0) return fault.call_previous();
  print_message(device, address);
  fault.restore_previous();
}

}  // namespace

void install_fault_message() {
  if (!kFaultMessageAvailable) return;
  g_explains_windows = true;
  g_faults.install();
}

bool judge_faults_by(FaultJudge judge) {
  if (!kFaultMessageAvailable) return false;
  g_judge.store(judge, std::memory_order_release);
  return g_faults.install();
}

void retry_writes_by(RetryWrite retry) {
  g_retry_write.store(retry, std::memory_order_release);
  g_faults.install();
}

}  // namespace openreg
