// The program that becomes an executor: openreg-executor LIBRARY... PROGRAM, where PROGRAM is the
// number of the process that has started it, and the last library is torch_openreg's. It is a
// program of its own because a fork of a program with threads cannot use PyTorch.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "executor/supervisor.h"

namespace {

char** g_libraries = nullptr;
int g_count = 0;

void load_and_serve(int socket) {
  void* library = nullptr;
  for (int i = 0; i < g_count; ++i) {
    library = dlopen(g_libraries[i], RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
      std::fprintf(stderr, "openreg: the executor cannot load a library: %s\n", dlerror());
      return;
    }
  }
  using Serve = void(int socket);
  auto* const serve = reinterpret_cast<Serve*>(dlsym(library, "openreg_serve_executor"));
  if (serve != nullptr) serve(socket);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "openreg-executor: only torch_openreg can start this program\n");
    return 2;
  }
  g_libraries = argv + 1;
  g_count = argc - 2;
  openreg::executor::be_executor(std::atoi(argv[argc - 1]), &load_and_serve);
}
