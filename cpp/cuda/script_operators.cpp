// What TorchScript has for torch.cuda: devices, streams and events in scripted functions. Only a
// build with CUDA registers these operators and classes; names and schemas are PyTorch's.
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/custom_class.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "slot.h"

namespace openreg::backend::script {

namespace {

using torch::jit::Stack;

c10::impl::VirtualGuardImpl guard() { return c10::impl::VirtualGuardImpl(kDeviceType); }

c10::Device device_at(std::int64_t index) {
  const auto count = guard().deviceCount();
  TORCH_CHECK(index >= 0 && index < count, "CUDA error: invalid device ordinal (got ", index,
              ", expected 0 to ", count - 1, ")");
  return {kDeviceType, static_cast<c10::DeviceIndex>(index)};
}

/// Of a device or an index that may be missing: then the current device.
c10::Device device_of(const c10::IValue& given) {
  if (given.isNone()) return guard().getDevice();
  if (given.isInt()) return device_at(given.toInt());
  const auto device = given.toDevice();
  return device.has_index() ? device_at(device.index()) : guard().getDevice();
}

class ScriptEvent;

/// torch.cuda.Stream in a scripted function.
class ScriptStream final : public torch::CustomClassHolder {
 public:
  explicit ScriptStream(c10::Stream stream) : stream_(stream) {}
  ScriptStream(std::optional<c10::Device> device, std::int64_t priority)
      : stream_(guard().getNewStream(device ? device_of(*device) : guard().getDevice(),
                                     static_cast<int>(priority))) {}

  const c10::Stream& stream() const { return stream_; }
  bool query() { return stream_.query(); }
  void synchronize() { stream_.synchronize(); }
  c10::intrusive_ptr<ScriptEvent> record_event(c10::intrusive_ptr<ScriptEvent> event);
  void wait_event(const c10::intrusive_ptr<ScriptEvent>& event);
  void wait_stream(const c10::intrusive_ptr<ScriptStream>& other);
  std::int64_t device_index() const { return stream_.device_index(); }
  c10::Device device() const { return stream_.device(); }
  std::int64_t id() const { return stream_.id(); }

 private:
  c10::Stream stream_;
};

/// torch.cuda.Event in a scripted function.
class ScriptEvent final : public torch::CustomClassHolder {
 public:
  ScriptEvent(bool enable_timing, bool /*blocking*/, bool interprocess)
      : event_(kDeviceType,
               enable_timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT) {
    TORCH_CHECK(
        !interprocess,
        "openreg: TorchScript does not support interprocess events (got interprocess=True)");
  }

  void record(const c10::intrusive_ptr<ScriptStream>& stream) { event_.record(stream->stream()); }
  void wait(const c10::intrusive_ptr<ScriptStream>& stream) { event_.block(stream->stream()); }
  bool query() { return event_.query(); }
  void synchronize() { event_.synchronize(); }
  double elapsed_time(const c10::intrusive_ptr<ScriptEvent>& end) {
    return event_.elapsedTime(end->event_);
  }

 private:
  c10::Event event_;
};

c10::intrusive_ptr<ScriptEvent> ScriptStream::record_event(c10::intrusive_ptr<ScriptEvent> event) {
  const auto self = c10::make_intrusive<ScriptStream>(stream_);
  if (!event) event = c10::make_intrusive<ScriptEvent>(false, false, false);
  event->record(self);
  return event;
}

void ScriptStream::wait_event(const c10::intrusive_ptr<ScriptEvent>& event) {
  event->wait(c10::make_intrusive<ScriptStream>(stream_));
}

void ScriptStream::wait_stream(const c10::intrusive_ptr<ScriptStream>& other) {
  wait_event(other->record_event({}));
}

TORCH_LIBRARY(cuda, m) {
  // Both before the first method, because methods of each take objects of the other.
  auto streams = m.class_<ScriptStream>("Stream");
  auto events = m.class_<ScriptEvent>("Event");
  streams
      .def(torch::init<std::optional<c10::Device>, std::int64_t>(), "",
           {torch::arg("device") = std::nullopt, torch::arg("priority") = 0})
      .def("query", &ScriptStream::query)
      .def("record_event", &ScriptStream::record_event)
      .def("synchronize", &ScriptStream::synchronize)
      .def("wait_event", &ScriptStream::wait_event)
      .def("wait_stream", &ScriptStream::wait_stream)
      .def("device_index", &ScriptStream::device_index)
      .def_property("device", &ScriptStream::device)
      .def("id", &ScriptStream::id);
  events
      .def(torch::init<bool, bool, bool>(), "",
           {torch::arg("enable_timing") = false, torch::arg("blocking") = false,
            torch::arg("interprocess") = false})
      .def("elapsed_time", &ScriptEvent::elapsed_time)
      .def("query", &ScriptEvent::query)
      .def("record", &ScriptEvent::record)
      .def("synchronize", &ScriptEvent::synchronize)
      .def("wait", &ScriptEvent::wait);
}

void push_stream(Stack& stack, c10::Stream stream) {
  stack.emplace_back(torch::make_custom_class<ScriptStream>(stream));
}

void current_stream(Stack& stack) {
  push_stream(stack, guard().getStream(device_of(torch::jit::pop(stack))));
}

void default_stream(Stack& stack) {
  push_stream(stack, guard().getDefaultStream(device_of(torch::jit::pop(stack))));
}

/// Returns the index of the device that was current; -1 if `index` is negative, which selects none.
void exchange_device(Stack& stack) {
  const auto index = torch::jit::pop(stack).toInt();
  stack.emplace_back(index < 0 ? std::int64_t{-1}
                               : std::int64_t{guard().exchangeDevice(device_at(index)).index()});
}

void set_stream(Stack& stack) {
  const auto stream = torch::jit::pop(stack).toCustomClass<ScriptStream>()->stream();
  guard().setDevice(stream.device());
  guard().exchangeStream(stream);
}

void synchronize(Stack& stack) {
  guard().synchronizeDevice(device_of(torch::jit::pop(stack)).index());
}

torch::jit::Operator scripted(const std::string& schema, torch::jit::Operation function,
                              bool has_effects) {
  return {"cuda::" + schema, std::move(function),
          has_effects ? c10::AliasAnalysisKind::CONSERVATIVE : c10::AliasAnalysisKind::FROM_SCHEMA};
}

// The classes above must be registered first: schemas name them.
const torch::jit::RegisterOperators kRegistered({
    scripted("current_stream.device(Device? device) -> __torch__.torch.classes.cuda.Stream",
             &current_stream, false),
    scripted("current_stream.int(int? val) -> __torch__.torch.classes.cuda.Stream", &current_stream,
             false),
    scripted("default_stream.device(Device? device) -> __torch__.torch.classes.cuda.Stream",
             &default_stream, false),
    scripted("default_stream.int(int? val) -> __torch__.torch.classes.cuda.Stream", &default_stream,
             false),
    scripted(
        "_current_device() -> int",
        [](Stack& stack) { stack.emplace_back(std::int64_t{guard().getDevice().index()}); }, false),
    scripted(
        "device_count() -> int",
        [](Stack& stack) { stack.emplace_back(std::int64_t{guard().deviceCount()}); }, false),
    scripted(
        "device_index(Device device) -> int",
        [](Stack& stack) {
          stack.emplace_back(std::int64_t{torch::jit::pop(stack).toDevice().index()});
        },
        false),
    scripted("_exchange_device(int64_t index) -> int", &exchange_device, true),
    scripted("_maybe_exchange_device(int64_t index) -> int", &exchange_device, true),
    scripted(
        "_set_device(int64_t val) -> ()",
        [](Stack& stack) { guard().setDevice(device_at(torch::jit::pop(stack).toInt())); }, true),
    scripted("set_stream(__torch__.torch.classes.cuda.Stream stream) -> ()", &set_stream, true),
    scripted(
        "synchronize() -> ()",
        [](Stack&) { guard().synchronizeDevice(guard().getDevice().index()); }, true),
    scripted("synchronize.device(Device? device) -> ()", &synchronize, true),
    scripted("synchronize.int(int? val) -> ()", &synchronize, true),
});

}  // namespace

}  // namespace openreg::backend::script
