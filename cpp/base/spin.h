#pragma once

#include <chrono>

#include "base/processor.h"
#include "base/usable_cores.h"

namespace openreg {

/// How long a thread spins before it sleeps: about the cost of a wake-up. What
/// else engines and hosts do before they sleep: runtime/host_expectation.h.
inline constexpr std::chrono::microseconds kSpinTime{20};

/// Polls `happened` for kSpinTime; returns whether it became true. It polls only at every eighth
/// pause: otherwise a cache line that another core writes would bounce between the two and slow the
/// writer down. If the process may use one core only, it polls once.
template <class Predicate>
bool spin_until(Predicate happened) {
  if (usable_cores() == 1) return happened();
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 8; ++i) relax_cpu();
    if (happened()) return true;
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace openreg
