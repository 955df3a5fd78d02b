#include "backend/compute_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

namespace openreg::backend {

namespace {

// In what libtorch_cpu has loaded: linking an OpenMP runtime could bring a second one into the
// process.
template <class F>
F* find_in_torch(const char* name) {
  void* library = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<F*>(::dlsym(library, name)) : nullptr;
}

// The calling thread's numbers; what was set before, as far as the setter tells.
void set_openmp_threads(int count) {
  static const auto set = find_in_torch<void(int)>("omp_set_num_threads");
  if (set != nullptr) set(count);
}
// After torch.set_num_threads MKL does not listen to OpenMP in new threads. Absent in builds
// without MKL. The name in small letters is another function, for Fortran: it takes a pointer.
int set_mkl_threads(int count) {
  static const auto set = find_in_torch<int(int)>("MKL_Set_Num_Threads_Local");
  return set != nullptr ? set(count) : 0;
}

}  // namespace

void compute_with_one_thread() {
  thread_local bool done = false;
  if (done) return;
  done = true;
  at::get_num_threads();  // ATen sets a thread's number at its first use; afterwards it leaves it
                          // alone
  set_openmp_threads(1);
  set_mkl_threads(1);
}

OneThreadGuard::OneThreadGuard() : openmp_(at::get_num_threads()), mkl_(set_mkl_threads(1)) {
  set_openmp_threads(1);
}

OneThreadGuard::~OneThreadGuard() {
  set_openmp_threads(openmp_);
  set_mkl_threads(mkl_);
}

}  // namespace openreg::backend
