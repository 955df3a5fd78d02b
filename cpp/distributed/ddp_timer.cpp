// The timer with which DistributedDataParallel measures its steps. Without one for the device it
// warns, and its logging data has no times.
#include <array>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "backend/exception.h"
#include "backend/stream.h"
#include "runtime/event.h"
#include "slot.h"

namespace openreg::distributed {

namespace {

class DdpTimer final : public c10d::Timer {
 public:
  explicit DdpTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event);
    auto& mark = mark_of(event);
    mark = std::make_unique<openreg::Event>(/*timing=*/true);
    backend::translate_errors([&] { mark->record(backend::current_stream(device_.index())); });
  }

  // In nanoseconds. Waits for both, as CUDA's timer does.
  std::optional<std::int64_t> measureDifference(Event start, Event end) override {
    const auto& first = mark_of(start);
    const auto& last = mark_of(end);
    if (!first || !last) return std::nullopt;
    return backend::translate_errors([&]() -> std::optional<std::int64_t> {
      first->synchronize();
      last->synchronize();
      const auto milliseconds = openreg::Event::elapsed_ms(*first, *last);
      if (milliseconds < 0) return std::nullopt;  // `end` is from the previous step
      return static_cast<std::int64_t>(milliseconds * 1e6);
    });
  }

 private:
  std::unique_ptr<openreg::Event>& mark_of(Event event) {
    return marks_.at(static_cast<std::size_t>(event));
  }

  const c10::Device device_;
  std::array<std::unique_ptr<openreg::Event>, 5> marks_;
};

}  // namespace

}  // namespace openreg::distributed

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, openreg::backend::kDeviceType,
                         openreg::distributed::DdpTimer)
}  // namespace c10d
