#pragma once

#include <memory>

namespace openreg::backend {

/// The thread state that every command runs under, on whichever thread: no Python dispatch or
/// torch-function modes, no functorch levels, no autograd and ADInplaceOrView keys, no autocast, no
/// inference mode, no RecordFunction callbacks of the host. The thread's device and stream are
/// restored afterwards. Engines also compute with one OpenMP and one MKL thread. After
/// install_clean_state() the runtime makes one for each turn.
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

/// Installs the runtime's callbacks for commands. Called once, when the library is loaded.
void install_clean_state();

}  // namespace openreg::backend
