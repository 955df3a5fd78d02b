#pragma once

#include "runtime/command.h"

namespace openreg::backend {

/// Makes the calling thread compute without a team: one OpenMP and one MKL thread, for this thread
/// only. Cheap after the first call. See docs/architecture.md, "Streams": a second team in the
/// process slows down both.
void compute_with_one_thread();

/// Ends the calling thread's team, if it has one: for a thread that has computed by exception. The
/// next parallel region makes a new one.
void release_team();

/// The number of threads that the calling thread's program computes with (torch.get_num_threads()):
/// as many as a long command may have from now on.
void note_wanted_threads() noexcept;

/// Sets the number of threads for the command that the calling thread is about to run; `engine`: it
/// is one. Returns what end_work() is given afterwards. See Note [Teams of engines].
int begin_work(Work work, bool engine) noexcept;
void end_work(int state) noexcept;

}  // namespace openreg::backend
