#pragma once

#include <signal.h>

namespace openreg {

/// The lowest number of the library's own descriptors. A program may have closed its standard
/// output, and what it writes to descriptor 1 must not reach one of the library's files.
inline constexpr int kFirstOwnDescriptor = 3;

/// A descriptor of a new, empty file in memory that has no name in any file system; -1, and errno
/// says why, if the system refuses it. `name` is what /proc shows.
int make_anonymous_file(const char* name) noexcept;

/// While it exists, a file that would exceed `ulimit -f` is only an error (EFBIG) on this thread:
/// the system also sends SIGXFSZ, which ends a process that does not ignore it, as Python does.
class FileSizeSignalBlock {
 public:
  FileSizeSignalBlock() noexcept;
  /// Keeps errno.
  ~FileSizeSignalBlock();
  FileSizeSignalBlock(const FileSizeSignalBlock&) = delete;
  FileSizeSignalBlock& operator=(const FileSizeSignalBlock&) = delete;

 private:
  sigset_t mask_{};  // of the thread before
  bool is_pending_;  // since before
};

}  // namespace openreg
