#include "backend/storage.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "address_space/address_space.h"
#include "backend/allocator.h"
#include "backend/exception.h"
#include "backend/stream.h"
#include "backend/submit.h"
#include "runtime/command.h"
#include "runtime/event.h"
#include "runtime/trace.h"

namespace openreg::backend {

namespace {

struct CopyArguments {
  void* to;
  const void* from;
  std::size_t bytes;
};

CopyArguments read(std::span<const std::byte> bytes) noexcept {
  CopyArguments arguments;
  std::memcpy(&arguments, bytes.data(), sizeof arguments);
  return arguments;
}

void run_copy(const Kernel&, std::span<const std::byte> bytes) {
  const auto arguments = read(bytes);
  const auto& space = AddressSpace::get();
  std::memcpy(space.aperture(arguments.to), space.aperture(arguments.from), arguments.bytes);
}

CommandSummary summarize_copy(std::span<const std::byte> bytes) noexcept {
  const auto arguments = read(bytes);
  const auto& space = AddressSpace::get();
  const bool within = space.device_of(arguments.to) == space.device_of(arguments.from);
  return {.kind = CommandSummary::Kind::kCopy,
          .from = MemoryKind::kDevice,
          .to = within ? MemoryKind::kDevice : MemoryKind::kOtherDevice,
          .bytes = arguments.bytes};
}

const Kernel kCopyKernel("copy_bytes", &run_copy, {.summarize = &summarize_copy});

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  translate_errors([&] {
    const auto& space = AddressSpace::get();
    const auto stream_of = [&](const void* p) -> openreg::Stream& {
      return current_stream(static_cast<c10::DeviceIndex>(space.device_of(p)));
    };
    auto& stream = stream_of(to);
    auto& source = stream_of(from);
    const CopyArguments arguments{to, from, bytes};
    if (&source != &stream) wait_stream(stream, source);
    submit(
        stream, kCopyKernel, std::as_bytes(std::span(&arguments, 1)),
        [&] {
          return MemoryOfCommand{
              {.storage = to, .storage_bytes = bytes, .footprint = {to, bytes}, .writes = true},
              {.storage = from, .storage_bytes = bytes, .footprint = {from, bytes}, .number = 1}};
        },
        {.counted_as = backend::counters::copies});
    if (&source != &stream)
      wait_stream(source, stream);  // memory freed there is not reused before it has been read
  });
}

void resize_storage(const c10::Storage& storage, std::size_t bytes) {
  auto& impl = *storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl.resizable(), "Trying to resize storage that is not resizable");
  const c10::DeviceGuard guard(storage.device());
  auto memory = device_allocator().allocate(bytes);
  copy_bytes(memory.get(), impl.data(), std::min(bytes, impl.nbytes()));
  // The old memory is freed now, and may belong to a stream other than the one that copies.
  device_allocator().recordStream(impl.data_ptr(), to_torch(current_stream()));
  impl.set_data_ptr_noswap(std::move(memory));
  impl.clear_materializer();  // memory that it shared now belongs to the other owners
  impl.set_nbytes(bytes);
}

}  // namespace openreg::backend
