#include "distributed/work.h"

#include <ATen/core/jit_type.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/exception.h"
#include "backend/stream.h"

namespace openreg::distributed {

namespace {

c10::DistBackendError error_of(const std::string& sentence) {
  return {{"WorkOccl", __FILE__, static_cast<std::uint32_t>(__LINE__)}, sentence};
}

/// The outputs' storages, so that the future need not search its value. nullopt if a tensor, such
/// as a sparse one, has no storage itself.
std::optional<std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>> storages_of(
    const std::vector<at::Tensor>& tensors) {
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages;
  for (const auto& tensor : tensors) {
    if (!tensor.has_storage()) return std::nullopt;
    storages.push_back(tensor.storage().getWeakStorageImpl());
  }
  return storages;
}

c10::intrusive_ptr<c10::ivalue::Future> future_of(const std::vector<at::Tensor>& outputs,
                                                  const std::vector<c10::Device>& devices) {
  static const auto& type = *new c10::TypePtr(c10::ListType::create(c10::TensorType::get()));
  auto future = c10::make_intrusive<c10::ivalue::Future>(type, devices);
  future->markCompleted(c10::IValue(outputs), storages_of(outputs));
  return future;
}

}  // namespace

WorkOccl::WorkOccl(int rank, What what, std::vector<Part> parts, std::vector<at::Tensor> outputs)
    : Work(rank, what.type),
      what_(std::move(what)),
      parts_(std::move(parts)),
      outputs_(std::move(outputs)),
      future_(future_of(outputs_, what_.devices)) {}

bool WorkOccl::isCompleted() {
  return std::ranges::all_of(parts_, [](const Part& part) { return part.end->poll(); });
}

bool WorkOccl::isSuccess() const { return exception() == nullptr; }

std::exception_ptr WorkOccl::exception() const {
  for (const auto& part : parts_) {
    if (auto error = part.operation->error()) return error;
  }
  return nullptr;
}

void WorkOccl::synchronize() {
  backend::translate_errors([&] {
    for (const auto& part : parts_) part.end->wait(backend::current_stream(part.device.index()));
  });
  for (const auto& part : parts_) part.stash->release();
}

bool WorkOccl::wait(std::chrono::milliseconds timeout) {
  if (timeout != kNoTimeout) {
    wait_on_host(timeout);
    if (const auto error = exception()) std::rethrow_exception(error);
  }
  synchronize();
  if (what_.host_waits) {
    backend::translate_errors([&] {
      for (const auto& device : what_.devices)
        backend::current_stream(device.index()).synchronize();
    });
  }
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> WorkOccl::getFuture() {
  const bool alike = std::ranges::all_of(outputs_, [&](const at::Tensor& output) {
    return output.sizes() == outputs_.front().sizes();
  });
  if (what_.type != c10d::OpType::ALLGATHER || !alike) return future_;
  return future_->then(
      [](c10::ivalue::Future& done) {
        return std::vector<at::Tensor>{at::stack(done.value().toTensorVector())};
      },
      future_->elementType());
}

void WorkOccl::wait_on_host(std::chrono::milliseconds timeout) const {
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& part : parts_) {
    // In milliseconds: the clock cannot represent the end of a timeout of centuries.
    const auto left = timeout - std::chrono::floor<std::chrono::milliseconds>(
                                    std::chrono::steady_clock::now() - begin);
    const bool ended =
        backend::translate_errors([&] { return part.end->synchronize_within(left); });
    if (!ended) {
      throw error_of(what_.member->sentence(what_.step) + " did not complete within " +
                     std::to_string(timeout.count()) + " ms");
    }
  }
}

void WorkOccl::abort() {
  const auto error = std::make_exception_ptr(error_of("the operation was aborted"));
  for (const auto& part : parts_) part.operation->give_up(error);
}

}  // namespace openreg::distributed
