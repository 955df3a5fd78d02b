#pragma once

#include <cstdint>

namespace openreg::ops {

/// What operators do that neither their schema nor their tags say.
enum class Quirk : std::uint16_t {
  /// The shape of a result, or what is refused, depends on elements, or the kernel cannot be tried
  /// on smaller tensors: the calling thread runs it.
  kNeedsElements = 1,
  /// It changes the storage of an argument, not its elements: the calling thread runs it.
  kChangesStorage = 2,
  /// Tagged as random, but draws no number as it is called here.
  kNotRandom = 4,
  /// Its meta function checks all sizes and integers: a probe need not see them.
  kMetaChecksAll = 8,
  /// Its floating-point numbers only scale; they change from call to call.
  kNumbersScale = 16,
};

/// Whether an operator, by its name with overload ("aten::add.Tensor"), has a quirk.
bool has_quirk(const char* op, Quirk quirk);

/// Arguments that the kernel writes although the schema does not say so.
bool writes_unsaid(const char* op, const char* argument);

/// Arguments that may be CPU tensors although the others are on a device, as with CUDA. Operators
/// that are not PyTorch's own take what they like.
bool takes_cpu_tensors(const char* op, const char* argument);

}  // namespace openreg::ops
