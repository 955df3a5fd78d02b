// torch.autograd.profiler.profile(use_device="openreg", use_kineto=False): PyTorch records an event
// before and after each operator, and reads the time between them.
#include <c10/core/DeviceGuard.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <memory>

#include "backend/device.h"
#include "backend/exception.h"
#include "backend/profiler.h"
#include "backend/stream.h"
#include "base/settings.h"
#include "runtime/event.h"
#include "runtime/stream.h"
#include "slot_hooks.h"

namespace openreg::backend {

namespace {

class EventProfiler final : public torch::profiler::impl::ProfilerStubs {
 public:
  using EventPtr = torch::profiler::impl::ProfilerVoidEventStub;

  void record(c10::DeviceIndex* device, EventPtr* event, std::int64_t* cpu_ns) const override {
    translate_errors([&] {
      if (device) *device = current_device();
      const auto recorded = std::make_shared<openreg::Event>(/*timing=*/true);
      if (cpu_ns) *cpu_ns = c10::getTime();
      recorded->record(current_stream());
      *event = recorded;
    });
  }
  /// In microseconds.
  float elapsed(const EventPtr* begin, const EventPtr* end) const override {
    return translate_errors([&] {
      const auto event = [](const EventPtr* pointer) {
        return static_cast<openreg::Event*>(pointer->get());
      };
      event(begin)->synchronize();
      event(end)->synchronize();
      constexpr double kMicroseconds = 1000;
      return static_cast<float>(openreg::Event::elapsed_ms(*event(begin), *event(end)) *
                                kMicroseconds);
    });
  }
  // Ranges belong to torch.profiler; no other tool would read ours.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> call) const override {
    for (int device = 0; device < device_count(); ++device) {
      // Returns to the previous device even if the call throws.
      const c10::DeviceGuard guard({kDeviceType, static_cast<c10::DeviceIndex>(device)});
      call(device);
    }
  }
  void synchronize() const override {
    translate_errors([] { synchronize_device(current_device()); });
  }
};

}  // namespace

void register_event_profiler() {
  static EventProfiler profiler;
  register_event_profiler(profiler);
}

}  // namespace openreg::backend
