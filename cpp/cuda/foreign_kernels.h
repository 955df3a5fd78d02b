#pragma once

#include <string>
#include <vector>

namespace openreg::backend {

/// Whether libraries that use PyTorch have been loaded since the last call, in whatever way. Cheap.
bool libraries_were_loaded();

/// Looks for kernels of CUDA that compiled code of other libraries has registered since the last
/// call (the first only takes note of what there is), because kernels for a GPU would compute
/// nothing here, and not say so. They are replaced by the device's kernel if they have overridden
/// one, else by the CPU's if the operator has one, else by one that raises NotImplementedError.
/// Kernels that Python has registered stay. Returns the names of the operators.
std::vector<std::string> replace_foreign_kernels();

}  // namespace openreg::backend
