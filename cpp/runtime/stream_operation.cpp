#include "runtime/stream_operation.h"

#include <cstring>
#include <exception>
#include <span>
#include <utility>

#include "base/error.h"
#include "runtime/stream.h"

namespace openreg {

namespace {

using Shared = std::shared_ptr<StreamOperation>;

// The queue's reference to the operation, which the command carries as a pointer.
std::unique_ptr<Shared> take(std::span<const std::byte> arguments) {
  Shared* shared = nullptr;
  const auto bytes = std::as_writable_bytes(std::span(&shared, 1));
  std::memcpy(bytes.data(), arguments.data(), bytes.size());
  return std::unique_ptr<Shared>(shared);
}

void begin(const Kernel&, std::span<const std::byte> arguments) {
  const auto operation = take(arguments);
  try {
    (*operation)->begin();
  } catch (...) {
    (*operation)->skip();
    (*operation)->end();  // the exception that is rethrown fails the stream
    throw;
  }
}

void skip(std::span<const std::byte> arguments) noexcept {
  const auto operation = take(arguments);
  (*operation)->skip();
  (*operation)->end();
}

}  // namespace

OperationKernel::OperationKernel(const char* name)
    : Kernel(name, &begin, {.brief = true, .once = true, .skip = &skip}) {}

void enqueue(Stream& stream, const OperationKernel& kernel, const Shared& operation) {
  auto shared = std::make_unique<Shared>(operation);
  const auto* const argument = shared.get();
  stream.enqueue(kernel, std::as_bytes(std::span(&argument, 1)));
  static_cast<void>(shared.release());
  operation->ended_.wait(stream, Backpressure::kIgnoreAndRun);
}

}  // namespace openreg
