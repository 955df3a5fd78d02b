#include "distributed/injected_faults.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace openreg::distributed {

namespace {

std::exception_ptr failure(const std::string& sentence) {
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, sentence));
}

/// Ends when the fault does, with a failure: the other ranks have gone on without this one.
class HungWork final : public c10d::Work {
 public:
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
};

}  // namespace

GlooOperation::Call injected_call(const backend::CollectiveFault& fault, GlooGroup& group) {
  if (!fault.error.empty()) {
    return [error = failure(fault.error), &group](c10d::Backend&, GlooOperation::Works&) {
      group.refuse_later(error);
      std::rethrow_exception(error);
    };
  }
  return [hangs = fault.hangs, &group](c10d::Backend&, GlooOperation::Works& works) {
    const auto work = c10::make_intrusive<HungWork>();
    works.push_back(work);
    hangs->hang(-1, [future = work->getFuture(), hangs = hangs.get(), &group] {
      const auto error = failure(hangs->describe() + " has ended");
      group.refuse_later(error);
      future->setErrorIfNeeded(error);
    });
  };
}

}  // namespace openreg::distributed
