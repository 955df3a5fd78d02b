#include "memory/runtime_backing.h"

#include "address_space/address_space.h"
#include "base/round_up.h"
#include "runtime/event.h"

namespace openreg::memory {

namespace {

class RuntimeEvent final : public RecordedEvent {
 public:
  explicit RuntimeEvent(Stream& stream) { event_.record_internal(stream); }
  bool completed() const noexcept override { return event_.is_complete(); }

 private:
  Event event_;
};

}  // namespace

Backing::Addresses RuntimeBacking::addresses() const {
  const auto& space = AddressSpace::get();
  return {space.window_begin(device_), space.window_bytes()};
}

void* RuntimeBacking::map(std::size_t bytes) { return AddressSpace::get().map(device_, bytes); }

bool RuntimeBacking::extend(void* end, std::size_t bytes) {
  return AddressSpace::get().extend(end, bytes);
}

Backing::Addresses RuntimeBacking::reserve(std::size_t page) {
  auto& space = AddressSpace::get();
  const std::size_t wanted = round_up(space.capacity() + space.capacity() / 8, page);
  const auto [begin, bytes] = space.reserve_range(device_, wanted, page);
  return {begin, bytes};
}

void RuntimeBacking::unreserve(Addresses addresses) noexcept {
  AddressSpace::get_if_reserved()->unreserve_range(addresses.begin, addresses.bytes);
}

bool RuntimeBacking::map_at(void* address, std::size_t bytes) {
  return AddressSpace::get().map_reserved(address, bytes);
}

void RuntimeBacking::unmap(void* memory, std::size_t bytes) noexcept {
  AddressSpace::get_if_reserved()->unmap(memory, bytes);
}

std::unique_ptr<RecordedEvent> RuntimeBacking::record_event(Stream& stream) {
  return std::make_unique<RuntimeEvent>(stream);
}

}  // namespace openreg::memory
