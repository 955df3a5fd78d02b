// A process that hangs, for check.py: streams that wait for each other, hosts that wait for
// streams, and memory that waits for a stream.

#include <stdexcept>
#include <thread>

#include "../runtime/stream_helpers.h"
#include "memory/device_heap.h"
#include "runtime/event.h"
#include "runtime/run_slice.h"
#include "runtime/scheduler.h"
#include "runtime/stream_pool.h"

using namespace openreg;
using namespace openreg::testing;

// gdb stops here.
extern "C" [[gnu::noinline]] void everything_waits() { asm volatile(""); }

int main() {
  Stream& running = create_stream(0);
  Stream& second = create_stream(0, Priority::kHigh);
  Stream& third = create_stream(1);
  Stream& outer = create_stream(1);

  enqueue(default_stream(0), [] { throw std::runtime_error("an error"); });
  default_stream(0).drain();  // the error stays

  Blocker blocker(running, blocking_kernel());
  Event first_done;
  first_done.record(running);
  first_done.wait(second);
  for (int i = 0; i < 40; ++i) enqueue_nothing(second);  // more than fit into one chunk
  Event second_done;
  second_done.record(second);
  second_done.wait(third);
  ExternalEvent outside("a collective");
  outside.wait(outer);

  auto& heap = memory::device_heap(0);
  heap.allocate(1000, running);
  void* const shared = heap.allocate(3 << 20, running).address;
  heap.record_stream(shared, second);
  heap.free(shared);

  const SleepWatch watch;
  std::thread host([&] { third.synchronize(); });
  if (!watch.see() || !happens([] { return counters::parks.value() >= 3; })) return 1;
  everything_waits();

  blocker.open();
  outside.signal();
  host.join();
  outer.synchronize();
}
