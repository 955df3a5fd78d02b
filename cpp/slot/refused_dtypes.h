#pragma once

#include <c10/core/ScalarType.h>

#include <span>
#include <string_view>

namespace openreg::ops {

/// Dtypes for which a slot's device has no kernel of an operator, although the CPU has one.
struct RefusedDtypes {
  std::string_view op;  ///< without its overload
  std::span<const c10::ScalarType> dtypes;
  std::string_view kernel;  ///< as the error names it
};

}  // namespace openreg::ops
