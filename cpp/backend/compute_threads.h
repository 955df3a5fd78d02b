#pragma once

namespace openreg::backend {

/// Makes the calling thread compute without a team: one OpenMP and one MKL thread, for this thread
/// only. Cheap after the first call. See docs/architecture.md, "Streams": a second team in the
/// process slows down both.
void compute_with_one_thread();

/// The same for a scope.
class OneThreadGuard {
 public:
  OneThreadGuard();
  ~OneThreadGuard();
  OneThreadGuard(const OneThreadGuard&) = delete;
  OneThreadGuard& operator=(const OneThreadGuard&) = delete;

 private:
  int openmp_;
  int mkl_;
};

}  // namespace openreg::backend
