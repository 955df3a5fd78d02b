#pragma once

#include "backend/torch_version.h"

#include <torch/library.h>

/// TORCH_LIBRARY_IMPL for the kernels of strided tensors on the device,
#define OPENREG_LIBRARY_IMPL(ns, m) TORCH_LIBRARY_IMPL(ns, PrivateUse1, m)
/// and for those of another kind: Sparse, SparseCsr, NestedTensor, Quantized, Autocast,
/// Autograd.
#define OPENREG_LIBRARY_IMPL_FOR(kind, ns, m) TORCH_LIBRARY_IMPL(ns, kind##PrivateUse1, m)
