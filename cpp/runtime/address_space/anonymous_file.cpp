#include "runtime/address_space/anonymous_file.h"

#include <sys/mman.h>

#include <cerrno>

namespace openreg {

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
