// The device in torch.profiler: the interface of Kineto, PyTorch's profiler library, to an
// accelerator. runtime/trace.h records; here a recording becomes the activities of a trace. The
// track of a stream has the device's index as its process id and the stream's number as its thread
// id.
#include <IActivityProfiler.h>
#include <c10/util/Exception.h>
#include <libkineto.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "address_space/address_space.h"
#include "backend/trace_activities.h"
#include "base/device_name.h"
#include "base/quantity.h"
#include "base/settings.h"
#include "runtime/process.h"
#include "runtime/trace.h"
#include "slot_kineto.h"

namespace openreg::backend {

namespace {

using libkineto::ActivityType;

const std::set<ActivityType> kActivities{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                         ActivityType::GPU_MEMSET,
                                         ActivityType::GPU_USER_ANNOTATION, kRuntimeActivity};

/// One recording, from torch.profiler's start to its trace.
class Session : public libkineto::IActivityProfilerSession {
 public:
  ~Session() override {
    if (recording_) tracing::stop();
  }

  void start() override {
    recording_ = true;
    tracing::start(static_cast<std::size_t>(settings().trace_records));
  }

  void stop() override {
    if (!std::exchange(recording_, false)) return;
    trace_ = tracing::stop();
    if (trace_.dropped == 0) return;
    errors_.push_back("openreg: the profiler dropped " + format_count(trace_.dropped, "record") +
                      " of the device (it keeps " + std::to_string(settings().trace_records) +
                      "); raise TORCH_OPENREG_TRACE_RECORDS");
    TORCH_WARN(errors_.back());
  }

  void pushCorrelationId(std::uint64_t id) override { tracing::push_operation(id); }
  void popCorrelationId() override { tracing::pop_operation(); }
  void pushUserCorrelationId(std::uint64_t id) override { tracing::push_annotation(id); }
  void popUserCorrelationId() override { tracing::pop_annotation(); }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(
        logger, [](std::int32_t) { return nullptr; }, 0, tracing::now());
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    std::int64_t begin, std::int64_t end) override {
    TraceActivities activities(std::exchange(trace_, {}), {begin, end}, linked);
    activities.log(logger);
    buffer_ = activities.take_buffer();
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  std::vector<std::string> errors() override { return errors_; }
  // Kineto takes one device here; without one it invents 16. processTrace() has named the other
  // devices and the streams.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(device_info(0));
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }

  std::string getDeviceProperties() override {
    std::string json;
    if (!is_initialized()) return json;
    for (int device = 0; device < device_count(); ++device) {
      json += std::string(device == 0 ? "" : ",") + R"({"id": )" + std::to_string(device) +
              R"(, "name": ")" + kDeviceName + R"(", "totalGlobalMem": )" +
              std::to_string(AddressSpace::get().capacity()) + "}";
    }
    return json;
  }

 private:
  bool recording_ = false;
  Trace trace_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::vector<std::string> errors_;
};

class Profiler : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return kActivities; }

  /// Null if only the CPU is to be profiled, and if the settings are malformed.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& wanted, const libkineto::Config&) override {
    if (!wanted.contains(ActivityType::CONCURRENT_KERNEL) || device_count() == 0) return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      std::int64_t, std::int64_t, const std::set<ActivityType>& wanted,
      const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  const std::string name_ = "openreg";
};

}  // namespace

void register_profiler() {
  register_activity_profiler([] { return std::make_unique<Profiler>(); });
}

}  // namespace openreg::backend
