#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "address_space/address_space.h"
#include "backend/faults.h"
#include "backend/stream.h"
#include "memory/value_tracker.h"
#include "ops/launch/launch.h"
#include "ops/launch/memory_of_command.h"
#include "ops/tensors/cpu_alias.h"
#include "ops/wire/extent.h"
#include "runtime/trace.h"
#include "slot.h"

namespace openreg::ops {

namespace {

/// item(): waits for the current stream, then the host reads the element.
at::Scalar local_scalar_dense(const at::Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  expect_memory(self);
  wait_for_device(self.device(), "aten::_local_scalar_dense");
  auto& stream = backend::current_stream(self.device().index());
  const tracing::HostCommand traced({stream.device(), stream.id()}, "aten::_local_scalar_dense",
                                    {.kind = CommandSummary::Kind::kCopy,
                                     .from = MemoryKind::kDevice,
                                     .to = MemoryKind::kPageable,
                                     .bytes = c10::elementSize(self.scalar_type())});
  note_host_access("aten::_local_scalar_dense", self, /*writes=*/false, {.argument = 0});
  backend::HostCopy copy(stream, "aten::_local_scalar_dense");
  DeviceWorkScope work({.name = "aten::_local_scalar_dense", .device = self.device().index()});
  alignas(16) std::array<std::byte, 16> element{};
  const auto* const tracker = memory::ValueTracker::get();
  if (!tracker || tracker->values_of(self.storage().data()) != memory::Values::kNone) {
    std::memcpy(element.data(), AddressSpace::get().aperture(self.const_data_ptr()),
                self.itemsize());
  }
  check_accesses_of_host(work);
  copy.end(element.data(), self.itemsize());
  at::Scalar scalar;
  AT_DISPATCH_V2(self.scalar_type(), "_local_scalar_dense_cpu",
                 AT_WRAP([&] { scalar = *reinterpret_cast<const scalar_t*>(element.data()); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), at::kComplexHalf, at::kHalf, at::kBool,
                 at::kBFloat16, AT_EXPAND(AT_FLOAT8_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  return scalar;
}

}  // namespace

OPENREG_LIBRARY_IMPL(aten, m) { m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense)); }

}  // namespace openreg::ops
