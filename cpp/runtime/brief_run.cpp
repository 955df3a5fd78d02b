#include "runtime/brief_run.h"

#include <utility>

#include "runtime/scheduler.h"
#include "runtime/turn.h"

namespace openreg {

namespace {

/// Streams that the calling thread owns and whose brief commands it runs one after another.
class BriefRun {
 public:
  using Strands = IntrusiveList<Strand, &Strand::link>;

  BriefRun() { current_ = this; }
  ~BriefRun() { current_ = nullptr; }
  BriefRun(const BriefRun&) = delete;
  BriefRun& operator=(const BriefRun&) = delete;

  static BriefRun* current() noexcept { return current_; }

  void add(Strand& strand) noexcept { owned_.push_back(strand); }
  void add(Strands parked) noexcept { scheduler_.unpark(std::move(parked), &owned_); }
  void run() {
    while (Strand* const strand = owned_.pop_front()) run(*strand);
  }

 private:
  void run(Strand& strand) {
    Turn turn(strand, Turn::Runner::kHost);
    while (!scheduler_.stopping()) {
      if (!turn.has_work()) {
        if (scheduler_.go_idle(strand)) return;
        continue;
      }
      if (!strand.next_is_brief()) break;
      if (!turn.step()) return;
    }
    scheduler_.release(strand);
  }

  Scheduler& scheduler_ = Scheduler::get();
  Strands owned_;

  static constinit thread_local BriefRun* current_;
};

constinit thread_local BriefRun* BriefRun::current_ = nullptr;

}  // namespace

void run_brief_commands(Strand& strand) {
  if (!Scheduler::get().take_idle(strand)) return;
  BriefRun run;
  run.add(strand);
  run.run();
}

void run_released(IntrusiveList<Strand, &Strand::link> strands) {
  if (in_command()) return Scheduler::get().unpark(std::move(strands));
  BriefRun run;
  run.add(std::move(strands));
  run.run();
}

void release_parked(IntrusiveList<Strand, &Strand::link> strands) {
  if (BriefRun* const run = BriefRun::current()) {
    run->add(std::move(strands));
  } else {
    Scheduler::get().unpark(std::move(strands));
  }
}

}  // namespace openreg
