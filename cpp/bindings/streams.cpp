#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <thread>

#include "backend/exception.h"
#include "backend/stream.h"
#include "base/device_name.h"
#include "base/error.h"
#include "bindings/bindings.h"
#include "runtime/process.h"
#include "runtime/stream_pool.h"

namespace openreg::bindings {

namespace {

constexpr std::chrono::nanoseconds kSlice = std::chrono::milliseconds(20);

// A cycle is a nanosecond. Sleeps, so that it takes no core from other work; in slices, because
// process exit does not wait for the rest.
void run_sleep(const Kernel&, std::span<const std::byte> arguments) {
  std::int64_t cycles = 0;
  std::memcpy(&cycles, arguments.data(), sizeof cycles);
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const std::chrono::nanoseconds wanted(cycles);
  for (Clock::duration slept{0}; slept < wanted && !is_shut_down(); slept = Clock::now() - begin)
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(wanted - slept, kSlice));
}

const Kernel kSleep{"openreg::sleep", &run_sleep};

void sleep(std::int64_t cycles) {
  backend::translate_errors([cycles] {
    backend::current_stream().enqueue(
        kSleep, std::as_bytes(std::span(&cycles, 1)),
        {.nanoseconds = static_cast<std::uint32_t>(std::min<std::int64_t>(cycles, Cost::kMost))});
  });
}

std::int64_t stream_at(int device, std::uintptr_t address) {
  return backend::translate_errors([=] {
    StreamPool& pool = StreamPool::of(device);
    if (address == 0) return pool.default_stream().id();  // as in CUDA, and so in other libraries
    for (const StreamImpl* const stream : pool.streams()) {
      if (reinterpret_cast<std::uintptr_t>(static_cast<const Stream*>(stream)) != address) continue;
      return pool.find(stream->id()).id();  // throws if it has been destroyed
    }
    throw Error(device_name(device) + " has no stream with this handle (got " +
                std::to_string(address) +
                ", expected the handle of a stream that has not been destroyed)");
  });
}

int stream_priority(int device, std::int64_t id) {
  return backend::translate_errors(
      [=] { return static_cast<int>(StreamPool::of(device).find(id).priority()); });
}

}  // namespace

void init_streams(nb::module_& m) {
  m.def(
      "sleep", &sleep, nb::arg("cycles"), ReleaseGil(),
      "Launches a kernel on the current stream that takes this many cycles, of a nanosecond each.");
  m.def("stream_at", &stream_at, nb::arg("device"), nb::arg("address"), ReleaseGil(),
        "Returns the id of the stream with this native handle; 0 is the default stream. Raises "
        "RuntimeError if there is none.");
  m.def("stream_priority", &stream_priority, nb::arg("device"), nb::arg("stream_id"), ReleaseGil(),
        "Returns the priority of a stream: 0 (normal) or -1 (high).");
}

}  // namespace openreg::bindings
