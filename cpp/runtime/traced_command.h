#pragma once

#include <cstdint>

#include "runtime/command.h"
#include "runtime/trace.h"

namespace openreg {

/// A command's slice of the trace, from its beginning to the end of the scope.
class TracedCommand {
 public:
  /// `id` links it with its submission.
  TracedCommand(StreamTrack track, bool by_engine, std::uint32_t id,
                const Command& command) noexcept
      : track_(track), by_engine_(by_engine), id_(id), command_(command) {
    if (tracing::on()) begin_ = tracing::now();
  }
  ~TracedCommand() {
    if (begin_ != 0) keep();
  }
  TracedCommand(const TracedCommand&) = delete;
  TracedCommand& operator=(const TracedCommand&) = delete;

  void drop() noexcept { begin_ = 0; }

 private:
  void keep() const noexcept {
    tracing::keep({.what = TraceSlice::What::kCommand,
                   .by_engine = by_engine_,
                   .id = id_,
                   .device = track_.device,
                   .stream = track_.stream,
                   .begin = begin_,
                   .end = tracing::now(),
                   .site = command_.site,
                   .name = command_.kernel->name(),
                   .summary = command_.kernel->summary(command_.arguments)});
  }

  const StreamTrack track_;
  const bool by_engine_;
  const std::uint32_t id_;
  const Command command_;
  std::int64_t begin_ = 0;
};

}  // namespace openreg
