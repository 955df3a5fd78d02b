#include "distributed/gloo_operation.h"

#include <c10/util/Exception.h>

#include <system_error>
#include <utility>

#include "backend/exception.h"
#include "distributed/blocking_calls.h"

namespace openreg::distributed {

void GlooGroup::close(std::unique_ptr<GlooGroup> group) {
  if (!group) return;
  const bool idle = [&] {
    const std::lock_guard lock(group->mutex_);
    return group->under_way_.empty() && group->progress_.idle();
  }();
  if (!idle) static_cast<void>(group.release());
}

void GlooGroup::add(const std::shared_ptr<GlooOperation>& operation) {
  const std::lock_guard lock(mutex_);
  if (aborted_) std::rethrow_exception(aborted_);
  under_way_.insert(operation);
}

void GlooGroup::remove(const GlooOperation& operation) {
  const std::lock_guard lock(mutex_);
  for (auto it = under_way_.begin(); it != under_way_.end(); ++it) {
    if (it->get() != &operation) continue;
    under_way_.erase(it);
    return;
  }
}

void GlooGroup::abort(const std::exception_ptr& error) {
  decltype(under_way_) all;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = error;
    all = under_way_;
  }
  for (const auto& operation : all) operation->give_up(error);
}

void GlooGroup::refuse_later(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!aborted_) aborted_ = error;
}

GlooOperation::GlooOperation(const Progress::Step& step,
                             std::shared_ptr<const Progress::Member> member, GlooGroup& group,
                             Call call, std::shared_ptr<Stash> memory, Waits waits,
                             std::function<void()> deliver)
    : StreamOperation(step.name),
      step_(step),
      member_(std::move(member)),
      group_(group),
      call_(std::move(call)),
      deliver_(std::move(deliver)),
      memory_(std::move(memory)),
      waits_(waits) {
  group_.progress().queued(step_);
}

GlooOperation::~GlooOperation() {
  if (call_) group_.progress().dropped(step_);
}

void GlooOperation::begin() {
  const auto self = shared_from_this();
  group_.progress().begun(step_);
  try {
    group_.add(self);
    if (waits_ == Waits::kForCall) {
      return run_on_separate_thread([self] { self->wait(self->call()); });
    }
    const auto begun = [&] {
      const std::lock_guard lock(group_.calls());
      return call();
    }();
    if (waits_ == Waits::kNothing) return watch(begun);
    try {
      run_on_separate_thread([self, begun] { self->wait(begun); });
    } catch (const std::system_error&) {
      wait(begun);  // no thread available: Gloo still uses the memory
    }
  } catch (...) {
    finish(std::current_exception());
  }
}

GlooOperation::Begun GlooOperation::call() noexcept {
  Begun begun;
  try {
    call_(group_.gloo(), begun.works);
  } catch (...) {
    begun.error = std::current_exception();
  }
  return begun;
}

void GlooOperation::watch(const Begun& begun) {
  if (begun.works.empty()) return finish(begun.error);
  // The first error becomes the operation's, and the last work to end ends the operation.
  struct Left {
    std::mutex mutex;
    std::size_t works;
    std::exception_ptr error;
  };
  const auto left = std::make_shared<Left>();
  left->works = begun.works.size();
  left->error = begun.error;
  for (const auto& work : begun.works) {
    work->getFuture()->addCallback([self = shared_from_this(), left](c10::ivalue::Future& future) {
      {
        const std::lock_guard lock(left->mutex);
        if (future.hasError() && !left->error) left->error = future.exception_ptr();
        if (--left->works > 0) return;
      }
      self->finish(left->error);
    });
  }
}

void GlooOperation::wait(Begun begun) {
  for (const auto& work : begun.works) {
    try {
      work->wait();
    } catch (...) {
      if (!begun.error) begun.error = std::current_exception();
    }
  }
  begun.works.clear();  // they refer to the group
  finish(begun.error);
}

void GlooOperation::skip() noexcept {
  call_ = nullptr;
  deliver_ = nullptr;
  memory_->gloo_finished();
  group_.progress().dropped(step_);
}

void GlooOperation::finish(const std::exception_ptr& error) {
  if (!error || this->error()) return finish();  // it has succeeded or was given up
  try {
    run_on_separate_thread([self = shared_from_this(), error] {
      self->fail(error, self->group_.progress().exchange());
      self->finish();
    });
  } catch (const std::system_error&) {
    fail(error);  // no thread available
    finish();
  }
}

void GlooOperation::finish() {
  call_ = nullptr;
  memory_->gloo_finished();
  auto error = [&] {
    const std::lock_guard lock(mutex_);
    gloo_finished_ = true;
    return error_;
  }();
  try {
    if (!error && deliver_) deliver_();
  } catch (...) {
    error = std::current_exception();
  }
  deliver_ = nullptr;
  if (error) {
    group_.progress().dropped(step_);
  } else {
    group_.progress().ended(step_);
  }
  group_.remove(*this);  // first: the end of the operation may end the group
  end(error);
}

void GlooOperation::give_up(const std::exception_ptr& error) {
  fail(error);
  // Without an error Gloo has finished with the operation, and finish() ends it.
  if (const auto own = this->error()) {
    memory_->give_up();
    end(own);
  }
}

void GlooOperation::fail(const std::exception_ptr& error, const std::string& others) {
  auto described = std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)},
                            member_->sentence(step_) + " failed: " + backend::message_of(error) +
                                (others.empty() ? "" : ". Other ranks: " + others)));
  const std::lock_guard lock(mutex_);
  if (!error_ && !gloo_finished_) error_ = std::move(described);
}

std::exception_ptr GlooOperation::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace openreg::distributed
