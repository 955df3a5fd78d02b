#pragma once

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

/// A team for a command that would keep one thread busy for long: gives the calling thread, an
/// engine, the cores that no other such command has, and returns how many. They go back by
/// end_long_work(), which leaves no team behind. See Note [Teams of engines].
int begin_long_work() noexcept;
void end_long_work(int threads) noexcept;

}  // namespace openreg::backend
