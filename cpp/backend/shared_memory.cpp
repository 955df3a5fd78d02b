#include "backend/shared_memory.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/COW.h>
#include <c10/core/impl/COWDeleter.h>

#include "backend/allocator.h"
#include "backend/exception.h"
#include "backend/stream.h"
#include "runtime/event.h"

namespace openreg::backend {

// Note [Shared memory]
// To a program a lazy clone is a tensor with its own memory: it does not order work on one of the
// two after work on the other. But until one is written to they share memory, and the last
// remaining owner writes in place, while other streams may still have to read the memory: for the
// copy that another owner got when it was written to, or for work on an owner that is gone. So each
// stream that reads shared memory is recorded with its block (record_stream), which also keeps the
// memory from being reused too early; and the stream of the last owner's first write waits for all
// of them. It may wait for more than their reads, but only there. Reading the address (data_ptr())
// counts as a write, on the stream that is current then.
namespace {

// Does what c10 does at the first write, in stream order.
void materialize(c10::StorageImpl* storage) {
  const c10::DeviceGuard guard(storage->device());
  const void* const shared = storage->data();
  // While the storage is still an owner: the memory may be freed as soon as the storage has its
  // copy.
  device_allocator().recordStream(storage->data_ptr(), to_torch(current_stream()));
  auto* const owners = static_cast<c10::impl::cow::COWDeleterContext*>(
      storage->_mutable_data_ptr_no_checks().get_context());
  try {
    c10::impl::cow::materialize_cow(storage);
  } catch (...) {
    owners->increment_refcount();  // it had left them before its copy failed
    throw;
  }
  if (storage->data() != shared || shared == nullptr) return;
  translate_errors([&] {
    auto& stream = current_stream();
    for (auto* const user : streams_of(shared)) {
      if (user != &stream) wait_stream_internal(stream, *user);
    }
  });
}

}  // namespace

void order_first_write(const c10::Storage& storage) {
  auto& impl = *storage.unsafeGetStorageImpl();
  impl.clear_materializer();
  impl.set_materializer(&materialize);
}

void note_read_of_shared(const c10::Storage& storage) {
  device_allocator().recordStream(storage.data_ptr(),
                                  to_torch(current_stream(storage.device().index())));
}

}  // namespace openreg::backend
