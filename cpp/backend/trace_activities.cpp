#include "backend/trace_activities.h"

#include <output_base.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/device_name.h"
#include "slot_kineto.h"

namespace openreg::backend {

namespace {

using libkineto::ActivityType;
using What = TraceSlice::What;
using Kind = CommandSummary::Kind;

// Kineto lengthens annotations by a nanosecond at either end, so that they overlap their
// neighbours.
constexpr std::int64_t kWidened = 1;

const char* letter_of(MemoryKind place) {
  return place == MemoryKind::kDevice || place == MemoryKind::kOtherDevice ? "D" : "H";
}

const char* name_of(MemoryKind place) {
  if (place == MemoryKind::kPinned) return "Pinned";
  return place == MemoryKind::kPageable ? "Pageable" : "Device";
}

bool is_between_devices(const CommandSummary& copy) {
  return copy.from == MemoryKind::kOtherDevice || copy.to == MemoryKind::kOtherDevice;
}

// As in CUDA's traces, and as expected by tools that read traces.
std::string name_of_copy(const CommandSummary& copy) {
  const std::string direction = is_between_devices(copy)
                                    ? "PtoP"
                                    : std::string(letter_of(copy.from)) + "to" + letter_of(copy.to);
  return "Memcpy " + direction + " (" + name_of(copy.from) + " -> " + name_of(copy.to) + ")";
}

ActivityType type_of(const CommandSummary& summary) {
  if (summary.kind == Kind::kCopy) return ActivityType::GPU_MEMCPY;
  return summary.kind == Kind::kFill ? ActivityType::GPU_MEMSET : ActivityType::CONCURRENT_KERNEL;
}

std::string name_of_command(const TraceSlice& slice) {
  if (slice.summary.kind == Kind::kCopy) return name_of_copy(slice.summary);
  return slice.summary.kind == Kind::kFill ? "Memset (Device)" : slice.name;
}

// Without the name of the device, which comes first.
const char* name_of_submission(const TraceSlice& slice) {
  if (slice.submits == What::kEventRecord) return "EventRecord";
  if (slice.submits == What::kEventWait) return "StreamWaitEvent";
  if (slice.submits == What::kGraph) return "GraphLaunch";
  if (slice.summary.kind == Kind::kCopy) return "MemcpyAsync";
  return slice.summary.kind == Kind::kFill ? "MemsetAsync" : "LaunchKernel";
}

// One end of the arrow from a submission to what it queued.
void add_arrow(libkineto::GenericTraceActivity& activity, std::uint32_t id, bool begins) {
  activity.addMetadata("correlation", id);
  activity.flow.id = id;
  activity.flow.type = libkineto::kLinkAsyncCpuGpu;
  activity.flow.start = begins ? 1 : 0;
}

bool is_on_thread(const TraceSlice& slice) {
  return slice.what == What::kSubmission || slice.what == What::kHostWait;
}

}  // namespace

TraceActivities::TraceActivities(const Trace& trace, Window window,
                                 const libkineto::getLinkedActivityCallback& linked)
    : window_(window), linked_(linked), buffer_(std::make_unique<libkineto::CpuTraceBuffer>()) {
  buffer_->span = libkineto::TraceSpan(window.begin, window.end, "openreg");
  buffer_->gpuOpCount = 0;
  // Both ends of an arrow must be in the trace.
  for (const auto& slice : trace.slices) {
    if (!is_within(slice) || slice.id == 0) continue;
    (is_on_thread(slice) ? submissions_ : queued_)[slice.id] = &slice;
  }
  for (const auto& slice : trace.slices) {
    if (!is_within(slice)) continue;
    is_on_thread(slice) ? add_on_thread(slice) : add_on_stream(slice);
  }
  submissions_.clear();  // they point into the recording
  queued_.clear();
}

bool TraceActivities::is_within(const TraceSlice& slice) const noexcept {
  return slice.begin >= window_.begin && slice.end <= window_.end;
}

TraceActivities::Activity& TraceActivities::add(ActivityType type, const std::string& name,
                                                const TraceSlice& slice) {
  buffer_->emplace_activity(buffer_->span, type, name);
  auto& activity = *buffer_->activities.back();
  activity.startTime = slice.begin;
  activity.endTime = slice.end;
  activity.id = static_cast<std::int32_t>(slice.id);
  return activity;
}

// Annotations are not device time: the device computes nothing for them.
TraceActivities::Activity& TraceActivities::add_annotation(const std::string& name,
                                                           const TraceSlice& slice) {
  auto& activity = add(ActivityType::GPU_USER_ANNOTATION, name, slice);
  activity.startTime += kWidened;
  activity.endTime = std::max(activity.endTime - kWidened, activity.startTime);
  return activity;
}

void TraceActivities::add_on_thread(const TraceSlice& slice) {
  const bool waits = slice.what == What::kHostWait;
  auto& activity =
      add(kRuntimeActivity,
          kDeviceName + (waits ? std::string(slice.name) : name_of_submission(slice)), slice);
  activity.device = ::getpid();
  activity.resource = slice.thread;
  activity.threadId = slice.thread;
  activity.linked = linked_(static_cast<std::int32_t>(slice.operation));
  if (queued_.contains(slice.id)) add_arrow(activity, slice.id, /*begins=*/true);
}

void TraceActivities::add_on_stream(const TraceSlice& slice) {
  const auto submission = submissions_.find(slice.id);
  const bool submitted = submission != submissions_.end();
  tracks_.insert({slice.device, slice.stream});
  auto& activity = [&]() -> Activity& {
    switch (slice.what) {
      case What::kEventRecord:
        return add_annotation("Event Record", slice);
      case What::kEventWait:
        return add_annotation("Stream Wait Event", slice);
      default:
        return add(type_of(slice.summary), name_of_command(slice), slice);
    }
  }();
  activity.device = slice.device;
  activity.resource = static_cast<std::int32_t>(slice.stream);
  activity.threadId = slice.thread;
  if (submitted) add_arrow(activity, slice.id, /*begins=*/false);
  activity.addMetadata("device", slice.device);
  activity.addMetadata("stream", slice.stream);
  if (slice.what == What::kEventWait) {
    activity.addMetadata("wait_on_device", slice.other_device);
    activity.addMetadata("wait_on_stream", slice.other_stream);
  }
  if (slice.what != What::kCommand) return;
  activity.addMetadataQuoted("run by", slice.by_engine ? "engine" : "host");
  activity.addMetadata("thread", slice.thread);
  if (slice.summary.kind != Kind::kKernel) {
    activity.addMetadataQuoted("operator", slice.name);
    activity.addMetadata("bytes", slice.summary.bytes);
    if (slice.end > slice.begin) {
      activity.addMetadata(
          "memory bandwidth (GB/s)",
          static_cast<double>(slice.summary.bytes) / static_cast<double>(slice.end - slice.begin));
    }
  }
  if (slice.site != 0) activity.addMetadataQuoted("launched by", describe(slice.site));
  if (!submitted) return;
  activity.linked = linked_(static_cast<std::int32_t>(submission->second->operation));
  if (submission->second->annotation != 0) annotate(slice, submission->second->annotation);
}

// Annotates a stream's track from the first command of a range to its last.
void TraceActivities::annotate(const TraceSlice& slice, std::uint64_t annotation) {
  const auto* const range = linked_(static_cast<std::int32_t>(annotation));
  if (!range) return;
  auto& activity = annotations_[{{slice.device, slice.stream}, annotation}];
  if (!activity) {
    activity = &add_annotation(range->name(), slice);
    activity->id = static_cast<std::int32_t>(range->correlationId());
    activity->device = slice.device;
    activity->resource = static_cast<std::int32_t>(slice.stream);
  }
  activity->startTime = std::min(activity->startTime, slice.begin + kWidened);
  activity->endTime = std::max(activity->endTime, slice.end - kWidened);
}

void TraceActivities::log(libkineto::ActivityLogger& logger) const {
  for (const auto& activity : buffer_->activities) activity->log(logger);
  std::set<std::int32_t> devices;
  for (const auto& [device, stream] : tracks_) {
    devices.insert(device);
    logger.handleResourceInfo(
        {.id = stream,
         .sortIndex = stream,
         .deviceId = device,
         .name = "stream " + std::to_string(stream) + (stream == 0 ? " (default)" : "")},
        window_.begin);
  }
  for (const auto device : devices) {
    if (device != 0) logger.handleDeviceInfo(device_info(device), window_.begin);
  }
}

libkineto::DeviceInfo device_info(int device) {
  const auto name = device_name(device);
  return {
      .id = device, .sortIndex = device + libkineto::kExceedMaxPid, .name = name, .label = name};
}

}  // namespace openreg::backend
