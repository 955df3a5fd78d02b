#include "distributed/mailbox.h"

#include <c10/util/Exception.h>

#include <cstring>
#include <utility>

namespace openreg::distributed {

void Mailbox::put(int tag, const at::Tensor& bytes) {
  auto message = bytes.clone();
  const std::lock_guard lock(mutex_);
  messages_[tag].push_back(std::move(message));
  changed_.notify_all();
}

void Mailbox::take(int tag, const at::Tensor& bytes, std::chrono::milliseconds timeout) {
  at::Tensor message;
  {
    std::unique_lock lock(mutex_);
    const bool arrived = changed_.wait_for(
        lock, timeout, [&] { return closed_ != nullptr || messages_.contains(tag); });
    if (closed_) std::rethrow_exception(closed_);
    TORCH_CHECK(arrived, "Timed out waiting ", timeout.count(),
                "ms for a message of this rank to itself with tag ", tag);
    auto& queue = messages_[tag];
    message = std::move(queue.front());
    queue.pop_front();
    if (queue.empty()) messages_.erase(tag);
  }
  TORCH_CHECK(message.nbytes() <= bytes.nbytes(), "a message of ", message.nbytes(),
              " bytes does not fit the tensor that receives it (got ", bytes.nbytes(), " bytes)");
  std::memcpy(bytes.mutable_data_ptr(), message.const_data_ptr(), message.nbytes());
}

void Mailbox::close(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  closed_ = error;
  changed_.notify_all();
}

}  // namespace openreg::distributed
