#pragma once

namespace openreg {

/// A descriptor of a new, empty file in memory that has no name in any file system; -1, and errno
/// says why, if the system refuses it. `name` is what /proc shows.
int make_anonymous_file(const char* name) noexcept;

}  // namespace openreg
