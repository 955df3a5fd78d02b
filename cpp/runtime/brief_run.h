#pragma once

#include "base/intrusive_list.h"
#include "runtime/scheduler_mutex.h"
#include "runtime/stream_impl.h"

namespace openreg {

// Note [Brief commands run where they become ready]
// Records, waits, and kernels with KernelTraits::brief take less time than waking an engine. The
// thread that enqueues one on an idle stream runs it, and the thread that signals an external event
// runs the streams that were parked on it, up to the first command that is not brief; streams that
// these release are run in the same way. Inside a command a thread leaves all of this to engines.

/// Called by a producer that has published a brief command and seen the stream idle.
void run_brief_commands(StreamImpl& stream) OPENREG_EXCLUDES(scheduler_mutex);

/// Runs streams whose fence has fired; inside a command, leaves them to engines and waiting hosts.
/// Called with no lock of the runtime held.
void run_released(StreamList streams) OPENREG_EXCLUDES(scheduler_mutex);

/// Like run_released(), for a fence that a stream's runner has fired: engines run the streams,
/// unless the calling thread is about to look for more brief commands.
void release_parked(StreamList streams) OPENREG_EXCLUDES(scheduler_mutex);

}  // namespace openreg
