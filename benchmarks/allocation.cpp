// The cost of allocating and freeing a block of device memory, by size and by number of threads:
// run with --benchmark_filter=... Threads share device 0's heap and its default stream, as in a
// program.
#include <benchmark/benchmark.h>

#include <cstddef>

#include "memory/device_heap.h"
#include "runtime/stream.h"

namespace {

void allocate_and_free(benchmark::State& state) {
  auto& heap = openreg::memory::device_heap(0);
  auto& stream = openreg::default_stream(0);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  for (auto _ : state) heap.free(heap.allocate(bytes, stream).address);
  state.SetItemsProcessed(state.iterations());
}

BENCHMARK(allocate_and_free)->Arg(1 << 10)->Arg(64 << 20)->UseRealTime();
BENCHMARK(allocate_and_free)->Arg(1 << 10)->Threads(2)->Threads(8)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
