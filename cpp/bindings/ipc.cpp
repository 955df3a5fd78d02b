#include "backend/ipc.h"

#include <nanobind/stl/vector.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Storage.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/bindings.h"

namespace openreg::bindings {

namespace {

// Plain numbers, which any pickler accepts.
nb::tuple to_tuple(const backend::IpcHandle& handle) {
  return nb::make_tuple(handle.file.process, handle.file.descriptor, handle.file.token,
                        handle.file.bytes, handle.device, handle.offset, handle.bytes,
                        handle.generation);
}

backend::IpcHandle to_handle(const nb::tuple& from) {
  return {.file = {.process = nb::cast<int>(from[0]),
                   .descriptor = nb::cast<int>(from[1]),
                   .token = nb::cast<std::uint64_t>(from[2]),
                   .bytes = nb::cast<std::size_t>(from[3])},
          .device = nb::cast<int>(from[4]),
          .offset = nb::cast<std::size_t>(from[5]),
          .bytes = nb::cast<std::size_t>(from[6]),
          .generation = nb::cast<std::uint32_t>(from[7])};
}

// The handle is in `messages` before a signal handler can run: an interrupt cannot lose it.
nb::tuple share_storage(const nb::object& storage, nb::list messages) {
  const c10::Storage shared = THPStorage_Unpack(storage.ptr());
  auto handle = to_tuple([&] {
    const nb::gil_scoped_release release;
    return backend::share_storage(shared);
  }());
  messages.append(handle);
  return handle;
}

nb::object receive_storage(const nb::tuple& handle, const nb::object& known) {
  const auto from = to_handle(handle);
  std::optional<c10::Storage> before;
  if (!known.is_none()) before = THPStorage_Unpack(known.ptr());
  const c10::Storage received = [&] {
    const nb::gil_scoped_release release;
    return backend::receive_storage(from, before ? &*before : nullptr);
  }();
  if (before && received.unsafeGetStorageImpl() == before->unsafeGetStorageImpl()) return known;
  return nb::steal(torch::createPyObject(received));
}

std::vector<std::uintptr_t> blocks_kept_for_others() {
  std::vector<std::uintptr_t> addresses;
  for (const void* const address : backend::blocks_kept_for_others())
    addresses.push_back(reinterpret_cast<std::uintptr_t>(address));
  return addresses;
}

}  // namespace

void init_ipc(nb::module_& m) {
  m.def("share_storage", &share_storage, nb::arg("storage"), nb::arg("messages"),
        nb::sig("def share_storage(storage: torch.UntypedStorage, "
                "messages: list[tuple[int, ...]]) -> tuple[int, ...]"),
        "Returns a handle of a storage, for one message to another process, and adds it to "
        "`messages`. Waits for the device.");
  m.def("receive_storage", &receive_storage, nb::arg("handle"), nb::arg("known").none(),
        nb::sig("def receive_storage(handle: tuple[int, ...], known: torch.UntypedStorage | None) "
                "-> torch.UntypedStorage"),
        "Returns the storage of a handle: `known` itself, if the handle refers to it.");
  m.def(
      "withdraw_message",
      [](const nb::tuple& handle) {
        const auto from = to_handle(handle);
        const nb::gil_scoped_release release;
        backend::withdraw_message(from);
      },
      nb::arg("handle"), nb::sig("def withdraw_message(handle: tuple[int, ...]) -> None"),
      "Takes back a handle that was made for a message which will not be received.");
  m.def("ipc_collect", &backend::collect_shared_and_received, ReleaseGil());
  m.def("blocks_kept_for_others", &blocks_kept_for_others, ReleaseGil(),
        "Addresses of blocks that only other processes use.");
}

}  // namespace openreg::bindings
