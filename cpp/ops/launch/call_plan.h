#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/wire/signature.h"
#include "runtime/command.h"

namespace openreg::ops {

/// The geometry of a result; `defined` is false for an undefined tensor.
struct Geometry {
  bool defined = false;
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::SmallVector<std::int64_t, 5> sizes;
  c10::SmallVector<std::int64_t, 5> strides;
  std::size_t nbytes = 0;  // of its storage: some kernels need more than the sizes require

  template <class Tensor>
  static Geometry of(const Tensor& tensor) {
    if (!tensor.defined()) return {};
    return {true,
            tensor.scalar_type(),
            {tensor.sizes().begin(), tensor.sizes().end()},
            {tensor.strides().begin(), tensor.strides().end()},
            tensor.storage().nbytes()};
  }
};

/// What a call will do, decided once for all calls of one signature.
struct CallPlan {
  /// False: the calling thread runs the CPU's kernel itself, once the stream is idle.
  bool asynchronous = true;
  /// The call waits for its command, because only the kernel can decide whether it takes such
  /// arguments.
  bool waits = false;
  /// The command must not report warnings, because the call has.
  bool drops_warnings = false;
  /// The geometry of new results, then of out arguments.
  c10::SmallVector<Geometry, 3> results{};
  /// From which of the kernel's allocations each new result comes (backend/result_placement.h).
  c10::SmallVector<std::int32_t, 3> allocations{};
  /// The warnings that every call of this signature reports.
  std::vector<c10::Warning> warnings{};
  Cost cost{};
};

/// A plan in the cache.
struct CachedPlan : CallPlan {
  CachedPlan(const SignatureView& of, CallPlan plan) : CallPlan(std::move(plan)), signature(of) {}

  const Signature signature;
  mutable std::atomic<std::uint64_t> last_used{0};
};
using PlanPtr = std::shared_ptr<const CachedPlan>;

}  // namespace openreg::ops
