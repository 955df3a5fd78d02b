#pragma once

#include <IActivityProfiler.h>
#include <libkineto.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/trace.h"

namespace openreg::backend {

/// A recording of the runtime as activities of a Kineto trace.
class TraceActivities {
 public:
  struct Window {  // nanoseconds since the epoch
    std::int64_t begin;
    std::int64_t end;
  };

  /// `linked` finds the call of an operator, or a range that the user named, by its number.
  TraceActivities(const Trace& trace, Window window,
                  const libkineto::getLinkedActivityCallback& linked);

  /// Passes all activities to `logger`, which keeps pointers to them, with the names of their
  /// streams and of all devices except the first.
  void log(libkineto::ActivityLogger& logger) const;

  /// The activities themselves, which the logger's owner keeps.
  std::unique_ptr<libkineto::CpuTraceBuffer> take_buffer() { return std::move(buffer_); }

 private:
  using Track = std::pair<std::int32_t, std::int64_t>;  // device, stream
  using Activity = libkineto::GenericTraceActivity;

  bool is_within(const TraceSlice& slice) const noexcept;
  Activity& add(libkineto::ActivityType type, const std::string& name, const TraceSlice& slice);
  Activity& add_annotation(const std::string& name, const TraceSlice& slice);
  void add_on_thread(const TraceSlice& slice);
  void add_on_stream(const TraceSlice& slice);
  void annotate(const TraceSlice& slice, std::uint64_t annotation);

  const Window window_;
  const libkineto::getLinkedActivityCallback& linked_;
  std::unordered_map<std::uint32_t, const TraceSlice*> submissions_;  // by id
  std::unordered_map<std::uint32_t, const TraceSlice*> queued_;       // what they queued
  std::set<Track> tracks_;
  std::map<std::pair<Track, std::uint64_t>, Activity*> annotations_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
};

/// The name of a device's tracks.
libkineto::DeviceInfo device_info(int device);

}  // namespace openreg::backend
