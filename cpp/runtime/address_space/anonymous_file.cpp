#include "runtime/address_space/anonymous_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <ctime>

namespace openreg {

namespace {

sigset_t file_size_signal() noexcept {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGXFSZ);
  return set;
}

}  // namespace

FileSizeSignalHeld::FileSizeSignalHeld() noexcept {
  sigset_t pending;
  sigpending(&pending);
  is_pending_ = sigismember(&pending, SIGXFSZ) == 1;
  const auto signal = file_size_signal();
  pthread_sigmask(SIG_BLOCK, &signal, &mask_);
}

FileSizeSignalHeld::~FileSizeSignalHeld() {
  const int saved_errno = errno;
  const auto signal = file_size_signal();
  constexpr timespec kAtOnce{};
  while (!is_pending_ && sigtimedwait(&signal, nullptr, &kAtOnce) < 0 && errno == EINTR) {
  }
  pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  errno = saved_errno;
}

int make_anonymous_file(const char* name) noexcept {
#ifndef MFD_NOEXEC_SEAL
  constexpr unsigned kNotExecutable = 8;
#else
  constexpr unsigned kNotExecutable = MFD_NOEXEC_SEAL;
#endif
  const int descriptor = memfd_create(name, MFD_CLOEXEC | kNotExecutable);
  if (descriptor >= 0 || errno != EINVAL) return descriptor;
  return memfd_create(name, MFD_CLOEXEC);  // for systems that do not know the flag
}

}  // namespace openreg
