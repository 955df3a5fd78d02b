#include "runtime/address_space/fault_message.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "runtime/address_space/address_space.h"

namespace openreg {

namespace {

struct sigaction g_previous_handler;

// A line that is built from async-signal-safe functions only.
class Line {
 public:
  Line& text(const char* characters) noexcept {
    while (*characters != '\0') put(*characters++);
    return *this;
  }

  Line& number(std::uintptr_t value, unsigned base) noexcept {
    char digits[20];
    std::size_t count = 0;
    do {
      digits[count++] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    while (count > 0) put(digits[--count]);
    return *this;
  }

  void write_to_stderr() const noexcept {
    [[maybe_unused]] const auto written =
        write(STDERR_FILENO, buffer_, size_);  // nothing can be done if it fails
  }

 private:
  void put(char character) noexcept {
    if (size_ < sizeof buffer_) buffer_[size_++] = character;
  }

  char buffer_[160];
  std::size_t size_ = 0;
};

void print_message(int device, const void* address) noexcept {
  Line line;
  line.text("openreg: the host touched device memory of openreg:")
      .number(static_cast<std::uintptr_t>(device), 10);
  line.text(" (address 0x").number(reinterpret_cast<std::uintptr_t>(address), 16);
  line.text("); copy it with .cpu()\n").write_to_stderr();
}

// Lets the signal have its original effect. A fault of the processor occurs again when the handler
// returns, so restoring the old disposition is enough; a signal that was sent must be sent again.
void restore_previous(int signal, bool sent) noexcept {
  sigaction(signal, &g_previous_handler, nullptr);
  if (sent) raise(signal);  // blocked until the handler returns
}

void call_previous(int signal, siginfo_t* info, void* context, bool sent) noexcept {
  if ((g_previous_handler.sa_flags & SA_SIGINFO) != 0) {
    g_previous_handler.sa_sigaction(signal, info, context);
  } else if (g_previous_handler.sa_handler == SIG_IGN && sent) {
    return;
  } else if (g_previous_handler.sa_handler == SIG_DFL || g_previous_handler.sa_handler == SIG_IGN) {
    restore_previous(signal, sent);
  } else {
    g_previous_handler.sa_handler(signal);
  }
}

void explain_fault(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const bool sent = info->si_code <= 0;  // by kill(): then si_addr is meaningless
  const AddressSpace* const space = AddressSpace::get_if_reserved();
  const int device = sent || space == nullptr ? -1 : space->device_of(info->si_addr);
  if (device >= 0) {
    print_message(device, info->si_addr);
    restore_previous(signal, sent);
  } else {
    call_previous(signal, info, context, sent);
  }
  errno = saved_errno;
}

}  // namespace

void install_fault_message() {
  if (kFaultMessageAvailable) {
    struct sigaction action;
    std::memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = explain_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, nullptr, &g_previous_handler);  // set before the first signal can need it
    sigaction(SIGSEGV, &action, nullptr);
  }
}

}  // namespace openreg
