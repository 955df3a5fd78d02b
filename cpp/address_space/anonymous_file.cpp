#include "address_space/anonymous_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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

FileSizeSignalBlock::FileSizeSignalBlock() noexcept {
  sigset_t pending;
  sigpending(&pending);
  is_pending_ = sigismember(&pending, SIGXFSZ) == 1;
  const auto signal = file_size_signal();
  pthread_sigmask(SIG_BLOCK, &signal, &mask_);
}

FileSizeSignalBlock::~FileSizeSignalBlock() {
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
  int descriptor = memfd_create(name, MFD_CLOEXEC | kNotExecutable);
  if (descriptor < 0 && errno == EINVAL)  // a system that does not know the flag
    descriptor = memfd_create(name, MFD_CLOEXEC);
  if (descriptor < 0 || descriptor >= kFirstOwnDescriptor) return descriptor;
  const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, kFirstOwnDescriptor);
  const int saved_errno = errno;
  close(descriptor);
  errno = saved_errno;
  return moved;
}

}  // namespace openreg
