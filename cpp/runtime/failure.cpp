#include "runtime/failure.h"

#include <utility>

#include "runtime/error.h"

namespace openreg {

namespace {

std::atomic<std::uint64_t> g_failures{0};

}  // namespace

Failure::Failure(const char* source, int device, std::int64_t stream, std::exception_ptr cause)
    : source_(source),
      device_(device),
      stream_(stream),
      cause_(std::move(cause)),
      sequence_(g_failures.fetch_add(1, std::memory_order_relaxed)) {}

void Failure::raise() {
  set_collected();
  throw CommandError(source_, device_, stream_, cause_);
}

std::string Failure::epitaph() const {
  // PyTorch's errors go on with a backtrace.
  const std::string text = describe(cause_);
  return "openreg: " + std::string(source_) + " failed on openreg:" + std::to_string(device_) +
         ", stream " + std::to_string(stream_) + ": " + text.substr(0, text.find('\n')) +
         "; no later call collected this error";
}

}  // namespace openreg
