#pragma once

#include "runtime/callbacks.h"
#include "runtime/command.h"

namespace openreg::backend {

/// Freezes the number of threads with which the calling thread computes. A thread takes it at its
/// first use of ATen from the last call of torch.set_num_threads, on any thread, and then keeps it;
/// each library has a first use of its own, because the function that does it is inline.
void freeze_thread_count();

/// Makes the calling thread compute without a team: with one OpenMP and one MKL thread. Affects no
/// other thread. Cheap after the first call. See docs/architecture.md, "Streams": a second team in
/// the process slows down both.
void use_one_thread();

/// Makes the calling thread compute with this many threads. Affects no other thread.
void use_thread_count(int threads);

/// While it lives, the calling thread computes with one thread.
class OneThreadScope {
 public:
  OneThreadScope();
  ~OneThreadScope();
  OneThreadScope(const OneThreadScope&) = delete;
  OneThreadScope& operator=(const OneThreadScope&) = delete;

 private:
  const int before_;
};

/// Ends the calling thread's team, if it has one: for a thread that computes only exceptionally.
/// The next parallel region makes a new team. Does nothing with an OpenMP runtime other than GCC's.
void release_team();

/// Notes the number of threads that the program computes with (torch.get_num_threads() on the
/// calling thread), which is the maximum for long commands from now on.
void note_wanted_threads() noexcept;

/// While it lives, the calling thread is an engine that runs commands. See Note [Teams].
class ComputingEngineScope {
 public:
  ComputingEngineScope() noexcept;
  ~ComputingEngineScope();
  ComputingEngineScope(const ComputingEngineScope&) = delete;
  ComputingEngineScope& operator=(const ComputingEngineScope&) = delete;
};

/// Who else computes when a long command begins.
struct Load {
  int cores;    // that the process may use
  int taken;    // by long commands
  int engines;  // that run commands, with the one that asks
};
/// The size of the team for a long command that an engine runs, at most `wanted`. See Note [Teams].
int threads_of_engine(Cost cost, int wanted, const Load& load) noexcept;
/// The size of the team for a long command that a host runs, at most `wanted`. See Note [Teams].
int threads_of_host(int wanted, const Load& load) noexcept;

/// Sets the number of threads for the command that the calling thread is about to run; `engine`:
/// whether the thread is an engine.
Callbacks::Team begin_compute(Cost cost, bool engine) noexcept;
void end_compute(Callbacks::Team team) noexcept;

}  // namespace openreg::backend
