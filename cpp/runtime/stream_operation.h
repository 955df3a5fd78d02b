#pragma once

#include <exception>
#include <memory>

#include "runtime/command.h"
#include "runtime/event.h"

namespace openreg {

class Stream;
class OperationKernel;

/// Work that threads outside the device do in the order of a stream (a collective): it begins when
/// the work before it has completed, and the work after it begins when it has ended. While it runs
/// it occupies no engine and no waiting host.
class StreamOperation {
 public:
  /// `name`, which is static, is the operation's name in errors and traces.
  explicit StreamOperation(const char* name) : ended_(name) {}
  virtual ~StreamOperation() = default;
  StreamOperation(const StreamOperation&) = delete;
  StreamOperation& operator=(const StreamOperation&) = delete;

  /// Begins the operation: called on the thread that runs the stream, which must not wait here.
  /// What it throws fails the stream as a kernel's error does. If it does not throw, end() must be
  /// called once afterwards.
  virtual void begin() = 0;
  /// Called instead of begin() if the stream skips the operation because an earlier command failed,
  /// and after a begin() that has thrown.
  virtual void skip() noexcept {}

  /// Called from any thread that holds no lock of the runtime. An `error` fails the stream. Only
  /// the first call counts.
  void end(std::exception_ptr error = nullptr) { ended_.signal(std::move(error)); }

 private:
  friend void enqueue(Stream& stream, const OperationKernel& kernel,
                      const std::shared_ptr<StreamOperation>& operation);
  ExternalEvent ended_;
};

/// A kernel that begins operations. Its commands have no meaning in another process.
class OperationKernel : public Kernel {
 public:
  explicit OperationKernel(const char* name);
};

/// Enqueues an operation. Nothing else may be enqueued on the stream during the call. Throws as
/// Stream::enqueue() does; then nothing was enqueued, unless the process ends or has no memory:
/// then the operation may be enqueued without the wait for its end.
void enqueue(Stream& stream, const OperationKernel& kernel,
             const std::shared_ptr<StreamOperation>& operation);

}  // namespace openreg
