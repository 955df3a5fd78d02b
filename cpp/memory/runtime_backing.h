#pragma once

#include <cstddef>
#include <memory>

#include "memory/backing.h"

namespace openreg::memory {

/// The device as a heap's Backing: memory of the address space, and events of the runtime.
class RuntimeBacking final : public Backing {
 public:
  explicit RuntimeBacking(int device) : device_(device) {}

  Addresses addresses() const override;
  void* map(std::size_t bytes) override;
  bool extend(void* end, std::size_t bytes) override;
  Addresses reserve(std::size_t page) override;
  void unreserve(Addresses addresses) noexcept override;
  bool map_at(void* address, std::size_t bytes) override;
  void unmap(void* memory, std::size_t bytes) noexcept override;
  std::unique_ptr<RecordedEvent> record_event(Stream& stream) override;

 private:
  int device_;
};

}  // namespace openreg::memory
