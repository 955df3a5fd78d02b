#pragma once

#include <memory>

namespace openreg::backend {

/// The thread state that every command runs under, whoever runs it: no Python dispatch or
/// torch-function modes, no functorch levels, no autograd and ADInplaceOrView keys, no autocast, no
/// inference mode surprises, no RecordFunction callbacks of the host; the thread's device and
/// stream are restored after. Engines also compute with one OpenMP and one MKL thread. The runtime
/// makes one for each turn, once install_clean_state() was called.
class CleanState {
 public:
  CleanState();
  ~CleanState();
  CleanState(const CleanState&) = delete;
  CleanState& operator=(const CleanState&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

/// Gives the runtime its hooks for commands. Called once when the library is loaded.
void install_clean_state();

}  // namespace openreg::backend
