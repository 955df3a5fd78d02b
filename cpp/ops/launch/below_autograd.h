#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace openreg::ops {

/// For code that runs CPU kernels on the calling thread: autograd and autocast have already been
/// handled above the backend.
class BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard guard_{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                            c10::autocast_dispatch_keyset};
};

}  // namespace openreg::ops
