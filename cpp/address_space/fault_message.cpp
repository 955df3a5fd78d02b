#include "address_space/fault_message.h"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "address_space/address_space.h"
#include "address_space/device_work.h"
#include "address_space/signal_handler.h"
#include "address_space/signal_text.h"
#include "base/device_name.h"

namespace openreg {

namespace {

void explain_fault(SignalHandler::Arrival& fault);
extern SignalHandler g_faults;
constinit SignalHandler g_faults(SIGSEGV, &explain_fault, kSignalEntries<g_faults>);
void explain_bus_error(SignalHandler::Arrival& fault);
extern SignalHandler g_bus_errors;
constinit SignalHandler g_bus_errors(SIGBUS, &explain_bus_error, kSignalEntries<g_bus_errors>);
std::atomic<bool> g_explains_windows{false};
std::atomic<FaultHandler> g_fault_handler{nullptr};
std::atomic<WriteFaultHandler> g_write_fault_handler{nullptr};

// "aten::sum on openreg:0, stream 3, node 2 of a graph".
void add_work(SignalText& line, const DeviceWork& work) noexcept {
  line.text(work.name).text(" on ").text(kDeviceName).text(":");
  line.number(static_cast<std::uintptr_t>(work.device));
  if (work.stream != DeviceWork::kNone)
    line.text(", stream ").number(static_cast<std::uintptr_t>(work.stream));
  if (work.node != DeviceWork::kNone)
    line.text(", node ").number(static_cast<std::uintptr_t>(work.node)).text(" of a graph");
}

// What this thread, which runs a command, has done, and will not survive.
void print_fatal(const DeviceWork& work, const char* did, const void* address) noexcept {
  SignalText line;
  line.text("openreg: ");
  add_work(line, work);
  line.text(", ").text(did);
  if (address != nullptr)
    line.text(" (address 0x").number(reinterpret_cast<std::uintptr_t>(address), 16).text(")");
  line.write_to_stderr();
}

void print_message(int device, const void* address) noexcept {
  SignalText line;
  if (const auto* const slot = slot_of_this_thread()) {
    line.text("openreg: in ");
    add_work(line, slot->work());
    line.text(", host code accessed device memory of ");
  } else {
    line.text("openreg: host code accessed device memory of ");
  }
  line.text(kDeviceName).text(":").number(static_cast<std::uintptr_t>(device));
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
  const auto retry = g_write_fault_handler.load(std::memory_order_acquire);
  return retry != nullptr && (access == FaultAccess::kWrite || access == FaultAccess::kUnknown) &&
         retry(address);
}

// A page that has the wrong protection can be opened, and only for data. All else would occur again
// without end: an instruction fetch, memory that is not there, protection keys.
FaultResult handle_fault(const siginfo_t& info, const void* context) noexcept {
  const auto access = access_of(context);
  if (info.si_code != SEGV_ACCERR || access == FaultAccess::kExecute)
    return FaultResult::kUnhandled;
  if (retries_write(info.si_addr, access)) return FaultResult::kRetry;
  const auto handler = g_fault_handler.load(std::memory_order_acquire);
  return handler == nullptr ? FaultResult::kUnhandled : handler(info.si_addr, access);
}

int device_with(const void* address) noexcept {
  const AddressSpace* const space = AddressSpace::get_if_reserved();
  return space == nullptr || !g_explains_windows ? -1 : space->device_of(address);
}

// The work that an access to a device's aperture belongs to: that of this thread, or, if it helps
// another thread, one of the commands of that device.
bool note_illegal_access(int device, const void* window_address) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(window_address);
  const auto note = [&](DeviceWorkScope::Slot& slot, bool is_suspicion) {
    std::uintptr_t none = 0;
    if (is_suspicion) slot.is_suspicion = true;
    slot.illegal.compare_exchange_strong(none, address);
  };
  if (auto* const own = slot_of_this_thread()) {
    note(*own, false);
    return true;
  }
  int candidates = 0;
  const auto is_candidate = [&](const DeviceWorkScope::Slot& slot) {
    return slot.device.load(std::memory_order_relaxed) == device;
  };
  for_each_working_slot([&](auto& slot) { candidates += is_candidate(slot) ? 1 : 0; });
  for_each_working_slot([&](auto& slot) {
    if (is_candidate(slot)) note(slot, candidates > 1);
  });
  return candidates != 0;
}

// Whether the access goes on; see Note [Illegal accesses].
bool goes_on_illegally(const siginfo_t& info, const void* context) noexcept {
  AddressSpace* const space = AddressSpace::get_if_reserved();
  if (space == nullptr || !g_explains_windows || info.si_code != SEGV_ACCERR) return false;
  const int device = space->device_of_aperture(info.si_addr);
  const auto access = access_of(context);
  if (device < 0 || access == FaultAccess::kExecute) return false;
  return note_illegal_access(device, space->window(info.si_addr)) &&
         space->open_unmapped(info.si_addr, access != FaultAccess::kRead);
}

// Faulthandler and others print, and then raise the signal again for the handler before them: ours,
// if they were installed later.
bool is_raised_by_this_process(const siginfo_t& info) noexcept {
  return info.si_code == SI_TKILL && info.si_pid == getpid();
}

void explain_fatal(const siginfo_t& info, bool sent) noexcept {
  if (sent && !is_raised_by_this_process(info)) return;
  const auto* const slot = slot_of_this_thread();
  if (slot == nullptr) {
    const auto* const space = AddressSpace::get_if_reserved();
    const int device = sent || !space ? -1 : space->device_of_aperture(info.si_addr);
    if (device >= 0)
      print_fatal({.name = "a thread that runs no command", .device = device},
                  "accessed unallocated memory", space->window(info.si_addr));
    return;
  }
  if (sent) return print_fatal(slot->work(), "was killed by a signal", nullptr);
  print_fatal(slot->work(), "accessed invalid memory", info.si_addr);
}

void explain_fault(SignalHandler::Arrival& fault) {
  if (fault.sent()) {
    explain_fatal(*fault.info, true);
    return fault.call_previous();
  }
  const void* const address = fault.info->si_addr;
  switch (handle_fault(*fault.info, fault.context)) {
    case FaultResult::kRetry:
      return;
    case FaultResult::kFatal:
      return fault.call_previous(/*occurs_again=*/false);  // another thread may mend it
    case FaultResult::kUnhandled:
      break;
  }
  const int device = device_with(address);
  if (device >= 0) {
    print_message(device, address);
    return fault.restore_previous();
  }
  if (goes_on_illegally(*fault.info, fault.context)) return;
  if (g_explains_windows) explain_fatal(*fault.info, false);
  fault.call_previous();
}

void explain_bus_error(SignalHandler::Arrival& fault) {
  explain_fatal(*fault.info, fault.sent());
  fault.call_previous();
}

}  // namespace

void install_fault_message() {
  if (!kFaultMessageAvailable) return;
  g_explains_windows = true;
  g_faults.install();
  g_bus_errors.install();
}

void keep_fault_message_in_front() {
  if (g_explains_windows) g_faults.install();
}

bool set_fault_handler(FaultHandler handler) {
  if (!kFaultMessageAvailable) return false;
  g_fault_handler.store(handler, std::memory_order_release);
  return g_faults.install();
}

void set_write_fault_handler(WriteFaultHandler handler) {
  g_write_fault_handler.store(handler, std::memory_order_release);
  g_faults.install();
}

}  // namespace openreg
