#pragma once

namespace openreg::backend {

/// Makes the calling thread compute without a team: one OpenMP and one MKL thread, for this thread
/// only. Cheap after the first call. See docs/architecture.md, "Streams": a second team in the
/// process slows down both.
void compute_with_one_thread();

/// Ends the calling thread's team, if it has one: for a thread that has computed by exception. The
/// next parallel region makes a new one.
void release_team();

}  // namespace openreg::backend
