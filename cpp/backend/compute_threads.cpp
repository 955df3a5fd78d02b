#include "backend/compute_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <string_view>

namespace openreg::backend {

namespace {

// In what libtorch_cpu has loaded: linking an OpenMP runtime could bring a second one into the
// process.
template <class F>
F* find_in_torch(const char* name) {
  void* library = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<F*>(::dlsym(library, name)) : nullptr;
}

}  // namespace

void compute_with_one_thread() {
  thread_local bool done = false;
  if (done) return;
  done = true;
  // ATen sets a thread's number at its first use, to that of torch.set_num_threads, and afterwards
  // leaves it alone. Each library remembers for itself what has been used: torch's does in the
  // first call, ours, for kernels of our own, in the second.
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
  static const auto set_openmp = find_in_torch<void(int)>("omp_set_num_threads");
  if (set_openmp != nullptr) set_openmp(1);
  // After torch.set_num_threads MKL does not listen to OpenMP in new threads. Absent in builds
  // without MKL. The name in small letters is another function, for Fortran: it takes a pointer.
  static const auto set_mkl = find_in_torch<int(int)>("MKL_Set_Num_Threads_Local");
  if (set_mkl != nullptr) set_mkl(1);
}

void release_team() {
  constexpr int kSoft = 1;  // omp_pause_soft
  static const auto pause = [] {
    auto* function = find_in_torch<int(int)>("omp_pause_resource_all");
    // GCC's ends the team of the calling thread; other runtimes mean those of the whole process.
    Dl_info info{};
    const bool is_gcc = function != nullptr &&
                        ::dladdr(reinterpret_cast<void*>(function), &info) != 0 &&
                        std::string_view(info.dli_fname).find("libgomp") != std::string_view::npos;
    return is_gcc ? function : nullptr;
  }();
  if (pause != nullptr) pause(kSoft);
}

}  // namespace openreg::backend
