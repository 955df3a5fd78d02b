#pragma once

namespace openreg::backend {

/// Operators on sparse tensors for which this folder has kernels: none.
inline constexpr const char* kSparseHere = "";
inline constexpr const char* kSparseCsrHere = "";

}  // namespace openreg::backend
