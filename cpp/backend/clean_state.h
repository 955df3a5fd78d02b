#pragma once

#include <memory>

namespace openreg::backend {

/// The thread state that every command runs under, on whichever thread: device 0 and the default
/// streams, no Python dispatch or torch-function modes, no functorch levels, no autograd and
/// ADInplaceOrView keys, no autocast, no inference mode, no RecordFunction callbacks of the host.
/// The destructor, on the same thread, restores all of that and the mode for denormals.
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

/// Installs the runtime's callbacks for commands: each run slice has a CleanState, engines compute
/// with one OpenMP and one MKL thread, and warnings are kept if there is no handler
/// (kernel_warnings.h). Called once, when the library is loaded.
void install_clean_state();

}  // namespace openreg::backend
