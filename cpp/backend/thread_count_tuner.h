#pragma once

#include <array>
#include <chrono>

#include "runtime/callbacks.h"

namespace openreg::backend {

/// Decides for one thread of the program, wait by wait, whether it runs commands with its team. See
/// Note [Teams of hosts].
class ThreadCountTuner {
 public:
  /// Called when the thread begins to run commands in a wait: `left` is the expected time of one
  /// thread for the stream's commands, `threads` the size of the team, on this many `cores`.
  bool takes_team(std::chrono::nanoseconds left, const Callbacks::SinceLastWait& before,
                  int threads, int cores) noexcept;

 private:
  using Waits = Callbacks::SinceLastWait::Waits;

  bool choose(double worth, const Waits& so_far) noexcept;
  void measure(const Waits& so_far) noexcept;
  bool is_much_slower(double pace) const noexcept;
  void note(double work, double pace) noexcept;
  void end_trial() noexcept;
  void switch_to(bool team) noexcept;

  bool had_team_ = true;  // in the last wait
  bool team_ = false;     // in waits that are in doubt
  bool is_warm_ = false;
  bool in_trial_ = false;  // team_ was the slower choice when it was last measured
  int parts_ = 0;          // measured since team_ was chosen
  int parts_to_keep_ = 0;  // parts to keep team_ before the other choice is tried
  Waits begin_;            // of the part that is being measured
  double work_ = 0;        // expected nanoseconds of commands for each wait, in the last part
  std::array<double, 2> pace_{};  // time taken per time expected: without a team, with one
};

}  // namespace openreg::backend
