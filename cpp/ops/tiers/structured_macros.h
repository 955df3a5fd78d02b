#pragma once

// Only the generated tables of structured operators include this.

#include "ops/tiers/structured.h"

/// The template arguments of register_structured() for an operator. The second macro is for
/// operators whose meta function builds an iterator, and names the CPU's own class.
#define STRUCTURED(META, FUNCTIONAL, OUT, KERNEL) \
  OPENREG_STRUCTURED(META, void, FUNCTIONAL, OUT, KERNEL)
#define ITERATED(META, NATIVE, FUNCTIONAL, OUT, KERNEL) \
  OPENREG_STRUCTURED(META, at::native::structured_##NATIVE, FUNCTIONAL, OUT, KERNEL)

#define OPENREG_STRUCTURED(META, NATIVE, FUNCTIONAL, OUT, KERNEL) \
  at::meta::structured_##META, NATIVE, at::_ops::FUNCTIONAL, at::_ops::OUT, &at::cpu::KERNEL
