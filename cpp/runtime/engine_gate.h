#pragma once

/// The gate that holds engines back while an adversarial schedule is in force (adversary.h). A
/// correct program may depend on commands that no host waits for: they wake a thread, or another
/// rank waits for them. So the gate opens, and engines run all streams, once the process has been
/// asleep for some time, until a host submits or waits again, and otherwise briefly, every few
/// seconds.
namespace openreg::engine_gate {

/// Puts the gate in force, closed, or with `held` false removes it. Throws Error if the system
/// refuses a thread.
void hold_engines(bool held);

/// Closes the gate: a host submits or waits.
void close() noexcept;
/// Opens the gate until close().
void open() noexcept;

/// Keeps the gate open while it lives: for hosts that sleep until others have run their work.
class OpenScope {
 public:
  OpenScope() noexcept;
  ~OpenScope();
  OpenScope(const OpenScope&) = delete;
  OpenScope& operator=(const OpenScope&) = delete;
};

}  // namespace openreg::engine_gate
