#include "runtime/brief_run.h"

#include "runtime/adversary.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"

namespace openreg {

namespace {

/// Streams that the calling thread owns and whose brief commands it runs one after another.
class BriefRun {
 public:
  BriefRun() { current_ = this; }
  ~BriefRun() { current_ = nullptr; }
  BriefRun(const BriefRun&) = delete;
  BriefRun& operator=(const BriefRun&) = delete;

  static BriefRun* current() noexcept { return current_; }

  void add(StreamImpl& stream) noexcept { owned_.push_back(stream); }
  void add(StreamList parked) noexcept { scheduler_.unpark(parked, &owned_); }
  void run() {
    while (StreamImpl* const stream = owned_.pop_front()) run(*stream);
  }

 private:
  void run(StreamImpl& stream) {
    RunSlice slice(stream, RunSlice::Runner::kHost);
    while (!scheduler_.stopping()) {
      if (!slice.has_work()) {
        if (scheduler_.go_idle(stream)) return;
        continue;
      }
      if (!stream.next_is_brief()) break;
      if (!slice.step()) return;
    }
    scheduler_.release(stream);
  }

  Scheduler& scheduler_ = Scheduler::get();
  StreamList owned_;

  static constinit thread_local BriefRun* current_;
};

constinit thread_local BriefRun* BriefRun::current_ = nullptr;

}  // namespace

void run_brief_commands(StreamImpl& stream) {
  if (!Scheduler::get().take_idle(stream)) return;
  BriefRun run;
  run.add(stream);
  run.run();
}

void run_released(StreamList streams) {
  if (in_command() || adversary::is_active()) return Scheduler::get().unpark(streams);
  BriefRun run;
  run.add(streams);
  run.run();
}

void release_parked(StreamList streams) {
  if (BriefRun* const run = BriefRun::current()) {
    run->add(streams);
  } else {
    Scheduler::get().unpark(streams);
  }
}

}  // namespace openreg
