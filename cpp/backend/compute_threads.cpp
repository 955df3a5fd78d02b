#include "backend/compute_threads.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/usable_cores.h"
#include "runtime/host_expectation.h"

namespace openreg::backend {

// Note [Teams]
//
// An engine computes with one thread: beside a busy host no more cores are free, and short commands
// end before a team has started. But no other thread can help a running kernel. So for a command
// that takes many times as long as starting a team (Cost::kLong) the engine takes a team of the
// cores that no other long command has, but never more threads than the program itself computes
// with. Engines that compute at the same time share these cores: of eight streams with products of
// 5 ms, the first would take all, and the others would run beside it on the same cores.
//
// The engine leaves one core to the host. A kernel divides its work into equal parts, so if the
// host is busy, the thread that shares its core delays all others: on 16 cores a product of 11 ms
// took 61 ms beside 5 ms of Python with 16 threads, and 18 ms with 15. On two or three cores the
// core of the host is too much to give away for a command that outlasts what a host launches beside
// it: a product of 90 ms takes 170 ms with one thread. But a product of 1.2 ms took 4 ms with two.
//
// The team ends with the command: libgomp counts the threads of all teams, and if there are more of
// them than cores, none of them spins between parallel regions, so each of the host's small
// operators has to wake its threads.
//
// A host that waits runs commands with as many threads as the program computes with, or with one;
// long ones with the cores that no other long command has. So the number of threads depends on
// which thread runs a command and on what else is running, and a sum that several threads share
// differs in its last bits. If results must be the same in every run (Cost::reproducible), only the
// expected cost decides: one thread, or the program's number.

namespace {

// Looks the function up among the libraries that libtorch_cpu has loaded: linking an OpenMP runtime
// could bring a second one into the process.
template <class F>
F* find_in_torch(const char* name) {
  void* library = ::dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<F*>(::dlsym(library, name)) : nullptr;
}

constexpr int kGlobal = 0;  // MKL: as many as the process computes with

/// For the calling thread only.
void set_threads(int threads, int threads_of_mkl) {
  static const auto set_openmp = find_in_torch<void(int)>("omp_set_num_threads");
  if (set_openmp != nullptr) set_openmp(threads);
  // After torch.set_num_threads MKL ignores OpenMP's number in new threads. The function is absent
  // in builds without MKL. The name in lower case is another function, for Fortran, which takes a
  // pointer.
  static const auto set_mkl = find_in_torch<int(int)>("MKL_Set_Num_Threads_Local");
  if (set_mkl != nullptr) set_mkl(threads_of_mkl);
}
void set_threads(int threads) { set_threads(threads, threads); }

constexpr int kFewCores = 3;

std::atomic<int> g_wanted{1};
std::atomic<int> g_taken{0};  // cores that long commands have
std::atomic<int> g_engines{0};

}  // namespace

void freeze_thread_count() {
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
}

void use_one_thread() {
  thread_local bool done = false;
  if (done) return;
  done = true;
  freeze_thread_count();
  set_threads(1);
}

void use_thread_count(int threads) {
  thread_local int now = 0;
  if (now != threads) set_threads(now = threads);
}

OneThreadScope::OneThreadScope() : before_(at::get_num_threads()) { set_threads(1); }
OneThreadScope::~OneThreadScope() { set_threads(before_, kGlobal); }

void release_team() {
  constexpr int kSoft = 1;  // omp_pause_soft
  static const auto pause = [] {
    auto* function = find_in_torch<int(int)>("omp_pause_resource_all");
    // GCC's function ends the team of the calling thread; other runtimes' function ends all teams
    // of the process. Another runtime may be installed under the name of GCC's library, but has the
    // function that is looked up below.
    Dl_info info{};
    const bool found =
        function != nullptr && ::dladdr(reinterpret_cast<void*>(function), &info) != 0;
    void* runtime = found ? ::dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : nullptr;
    const bool is_gcc = runtime != nullptr && ::dlsym(runtime, "__kmpc_fork_call") == nullptr;
    return is_gcc ? function : nullptr;
  }();
  if (pause != nullptr) pause(kSoft);
}

// Not those of autograd's threads. They take the number that torch.set_num_threads was last given
// when they begin, by any thread: 1 once a DataLoader pins memory, which it does in a thread that
// calls that function for itself. PyTorch's CPU backend does not meet it, as it runs backward
// passes in the threads that call them.
void note_wanted_threads() noexcept {
  if (torch::autograd::get_current_graph_task_id() != -1) return;
  g_wanted.store(at::get_num_threads(), std::memory_order_relaxed);
}

ComputingEngineScope::ComputingEngineScope() noexcept {
  g_engines.fetch_add(1, std::memory_order_relaxed);
}
ComputingEngineScope::~ComputingEngineScope() { g_engines.fetch_sub(1, std::memory_order_relaxed); }

int threads_of_engine(Cost cost, int wanted, const Load& load) noexcept {
  const bool leaves_one = load.cores > kFewCores ||
                          std::chrono::nanoseconds(cost.nanoseconds) < thresholds::kOutlastsHost;
  const int cores = load.cores - (leaves_one ? 1 : 0);
  const int share = (cores + load.engines - 1) / std::max(load.engines, 1);
  return std::max(1, std::min({wanted, share, cores - load.taken}));
}

int threads_of_host(int wanted, const Load& load) noexcept {
  if (load.taken == 0) return wanted;
  return std::max(1, std::min(wanted, load.cores - load.taken));
}

Callbacks::Team begin_compute(Cost cost, bool engine) noexcept {
  const int wanted = cost.is_long() ? g_wanted.load(std::memory_order_relaxed) : 1;
  const int otherwise = engine ? 1 : at::get_num_threads();
  int threads = wanted;
  Load load{usable_cores(), g_taken.load(std::memory_order_relaxed),
            g_engines.load(std::memory_order_relaxed)};
  do {
    if (!cost.reproducible)
      threads = engine ? threads_of_engine(cost, wanted, load) : threads_of_host(wanted, load);
  } while (
      !g_taken.compare_exchange_weak(load.taken, load.taken + threads, std::memory_order_relaxed));
  if (threads != otherwise) set_threads(threads);
  return {threads, otherwise, engine};
}

void end_compute(Callbacks::Team team) noexcept {
  g_taken.fetch_sub(team.threads, std::memory_order_relaxed);
  if (team.threads == team.otherwise) return;
  set_threads(team.otherwise, team.engine ? 1 : kGlobal);
  if (team.engine) release_team();
}

}  // namespace openreg::backend
