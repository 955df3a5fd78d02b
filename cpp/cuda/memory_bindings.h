#pragma once

#include "bindings/bindings.h"

namespace openreg::bindings {

/// What Inductor's trees of graphs (torch/_inductor/cudagraph_trees.py) need of the allocator, and
/// of storages whose memory it manages. These are passed by the addresses of their c10 objects.
void init_graph_trees(nb::module_& m);

/// DLPack's exchange of tensors by functions of C (`Tensor.__dlpack_c_exchange_api__`), without the
/// device's addresses.
void init_dlpack_exchange(nb::module_& m);

}  // namespace openreg::bindings
