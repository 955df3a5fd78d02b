#pragma once

/// When engines work although an adversarial schedule is in force (adversary.h). A correct program
/// may depend on commands that no host waits for: they wake a thread, or another rank waits for
/// them. So engines run all streams once the process has been asleep for some time, until a host
/// submits or waits again, and otherwise briefly, every few seconds.
namespace openreg::patience {

/// From now on engines work only as described above; or, if not `held`, always. Throws Error if the
/// system refuses a thread.
void hold_engines(bool held);

/// A host submits or waits.
void renew() noexcept;
/// Lets engines work until renew().
void lose() noexcept;

/// Engines work while it lives: for hosts that sleep until others have run their work.
class EnginesWork {
 public:
  EnginesWork() noexcept;
  ~EnginesWork();
  EnginesWork(const EnginesWork&) = delete;
  EnginesWork& operator=(const EnginesWork&) = delete;
};

}  // namespace openreg::patience
