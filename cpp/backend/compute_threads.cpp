#include "backend/compute_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <thread>

namespace openreg::backend {

// Note [Teams of engines]
//
// An engine computes with one thread: beside a busy host that is what there is, and short commands
// are over before a team has started. Nobody can help a kernel that runs, though. So for a command
// whose work outweighs a team's start many times (ops/launch/work.h) the engine takes a team of the
// cores that no other long command has, and never more than the program computes with itself. The
// team ends with the command: libgomp counts the threads of all teams, and where they are more than
// the cores it lets none of them spin between parallel regions, which costs the host's small
// operators a wake for each.
//
// A host that waits runs commands with as many threads as the program computes with. So the number
// depends on who runs a command, and on what else is running; and a sum that threads share comes
// out differently in its last bits. Where results have to be the same in every run
// (Work::reproducible), only the expected work decides: one thread, or the program's number.

namespace {

// In what libtorch_cpu has loaded: linking an OpenMP runtime could bring a second one into the
// process.
template <class F>
F* find_in_torch(const char* name) {
  void* library = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<F*>(::dlsym(library, name)) : nullptr;
}

}  // namespace

namespace {

constexpr int kGlobal = 0;  // MKL: as many as the process computes with

/// Of the calling thread only.
void set_threads(int threads, int threads_of_mkl) {
  static const auto set_openmp = find_in_torch<void(int)>("omp_set_num_threads");
  if (set_openmp != nullptr) set_openmp(threads);
  // After torch.set_num_threads MKL does not listen to OpenMP in new threads. Absent in builds
  // without MKL. The name in small letters is another function, for Fortran: it takes a pointer.
  static const auto set_mkl = find_in_torch<int(int)>("MKL_Set_Num_Threads_Local");
  if (set_mkl != nullptr) set_mkl(threads_of_mkl);
}
void set_threads(int threads) { set_threads(threads, threads); }

std::atomic<int> g_wanted{1};
std::atomic<int> g_taken{0};  // cores that long commands have

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
  set_threads(1);
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

void note_wanted_threads() noexcept {
  g_wanted.store(at::get_num_threads(), std::memory_order_relaxed);
}

// The state: of an engine, the cores that it has taken; of a host, less than 0, its own number of
// threads.
int begin_work(Work work, bool engine) noexcept {
  const int wanted = work.microseconds != 0 ? g_wanted.load(std::memory_order_relaxed) : 1;
  if (!engine) {
    const int own = at::get_num_threads();
    set_threads(wanted);
    return -own;
  }
  static const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  int taken = g_taken.load(std::memory_order_relaxed);
  int threads = wanted;
  do {
    if (!work.reproducible) threads = std::max(1, std::min(wanted, cores - taken));
  } while (!g_taken.compare_exchange_weak(taken, taken + threads, std::memory_order_relaxed));
  if (threads > 1) set_threads(threads);
  return threads;
}

void end_work(int state) noexcept {
  if (state < 0) {
    set_threads(-state, kGlobal);
    return;
  }
  if (state > 1) {
    set_threads(1);
    release_team();
  }
  g_taken.fetch_sub(state, std::memory_order_relaxed);
}

}  // namespace openreg::backend
