// The overhead of the device apart from computation: launching, waiting, and ordering streams.
// Commands are empty and carry the arguments of a small operator.

#include <benchmark/benchmark.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

#include "base/command.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace openreg {
namespace {

constexpr std::array<std::byte, 96> kArguments{};

const Kernel& empty_kernel() {
  static const Kernel kernel("benchmark_nothing", [](const Kernel&, std::span<const std::byte>) {});
  return kernel;
}

const Kernel& spin_kernel() {
  static const Kernel kernel("benchmark_spin",
                             [](const Kernel&, std::span<const std::byte> arguments) {
                               std::chrono::nanoseconds time;
                               std::memcpy(&time, arguments.data(), sizeof time);
                               const auto end = std::chrono::steady_clock::now() + time;
                               while (std::chrono::steady_clock::now() < end) {
                               }
                             });
  return kernel;
}

void launch(Stream& stream) { stream.submit(empty_kernel(), kArguments); }

// Long enough for every engine to fall asleep.
void let_engines_sleep() { std::this_thread::sleep_for(std::chrono::microseconds(300)); }

// One of many launches, while the stream is parked and nothing runs it.
void submit_to_a_parked_stream(benchmark::State& state) {
  constexpr int kBatch = 1000;  // below the queue's bound
  Stream& stream = create_stream(0);
  while (state.KeepRunningBatch(kBatch)) {
    state.PauseTiming();
    ExternalEvent gate;
    gate.wait(stream);
    state.ResumeTiming();
    for (int i = 0; i < kBatch; ++i) launch(stream);
    state.PauseTiming();
    gate.signal();
    stream.synchronize();
    state.ResumeTiming();
  }
  destroy_stream(stream);
}
BENCHMARK(submit_to_a_parked_stream);

// One of many launches, while an engine runs them: the queue never fills.
void submit_beside_an_engine(benchmark::State& state) {
  constexpr int kBatch = 500;
  Stream& stream = create_stream(0);
  while (state.KeepRunningBatch(kBatch)) {
    for (int i = 0; i < kBatch; ++i) launch(stream);
    state.PauseTiming();
    stream.synchronize();
    launch(stream);  // wakes the engine, which then lingers
    while (!stream.query()) {
    }
    state.ResumeTiming();
  }
  destroy_stream(stream);
}
BENCHMARK(submit_beside_an_engine);

// Launch and run, end to end, per command, including the cost of a full queue.
void chain(benchmark::State& state) {
  Stream& stream = create_stream(0);
  const auto commands = state.range(0);
  while (state.KeepRunningBatch(commands)) {
    for (std::int64_t i = 0; i < commands; ++i) launch(stream);
    stream.synchronize();
  }
  destroy_stream(stream);
}
BENCHMARK(chain)->Arg(100)->Arg(100'000);

void synchronize_an_idle_stream(benchmark::State& state) {
  Stream& stream = create_stream(0);
  for (auto _ : state) stream.synchronize();
  destroy_stream(stream);
}
BENCHMARK(synchronize_an_idle_stream);

void query_an_idle_stream(benchmark::State& state) {
  Stream& stream = create_stream(0);
  for (auto _ : state) benchmark::DoNotOptimize(stream.query());
  destroy_stream(stream);
}
BENCHMARK(query_an_idle_stream);

void submit_and_synchronize(benchmark::State& state) {
  Stream& stream = create_stream(0);
  for (auto _ : state) {
    launch(stream);
    stream.synchronize();
  }
  destroy_stream(stream);
}
BENCHMARK(submit_and_synchronize);

void record(benchmark::State& state) {
  constexpr int kBatch = 1000;
  Stream& stream = create_stream(0);
  Event event;
  while (state.KeepRunningBatch(kBatch)) {
    for (int i = 0; i < kBatch; ++i) event.record(stream);
    state.PauseTiming();
    stream.synchronize();
    state.ResumeTiming();
  }
  destroy_stream(stream);
}
BENCHMARK(record);

// A command on one stream, an event, a command on the other that waits for it; and back.
void hop(benchmark::State& state) {
  Stream& first = create_stream(0);
  Stream& second = create_stream(0);
  Event event;
  constexpr int kPairs = 500;
  while (state.KeepRunningBatch(2 * kPairs)) {
    for (int i = 0; i < kPairs; ++i) {
      launch(first);
      event.record(first);
      event.wait(second);
      launch(second);
      event.record(second);
      event.wait(first);
    }
    first.synchronize();
    second.synchronize();
  }
  destroy_stream(first);
  destroy_stream(second);
}
BENCHMARK(hop);

// The most expensive launch: an engine must be woken.
void submit_with_engines_asleep(benchmark::State& state) {
  Stream& stream = create_stream(0);
  for (auto _ : state) {
    state.PauseTiming();
    stream.synchronize();
    let_engines_sleep();
    state.ResumeTiming();
    launch(stream);
  }
  stream.synchronize();
  destroy_stream(stream);
}
BENCHMARK(submit_with_engines_asleep)->Iterations(2000);

// A command of the given microseconds, launched on an idle stream and waited for.
void command_from_idle(benchmark::State& state) {
  const std::chrono::nanoseconds time = std::chrono::microseconds(state.range(0));
  Stream& stream = create_stream(0);
  for (auto _ : state) {
    state.PauseTiming();
    let_engines_sleep();
    state.ResumeTiming();
    stream.submit(spin_kernel(), std::as_bytes(std::span(&time, 1)));
    stream.synchronize();
  }
  destroy_stream(stream);
}
BENCHMARK(command_from_idle)->Arg(5)->Arg(50)->Arg(500)->Iterations(1000)->UseRealTime();

}  // namespace
}  // namespace openreg

BENCHMARK_MAIN();
