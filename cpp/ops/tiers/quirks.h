#pragma once

#include <cstdint>

namespace openreg::ops {

/// Behaviour of operators that neither their schema nor their tags show.
enum class Quirk : std::uint16_t {
  /// The shape of a result, or whether the call is refused, depends on the values of elements, or
  /// the kernel cannot be tried on smaller tensors: the calling thread runs it.
  kNeedsElements = 1,
  /// It changes the storage of an argument, not its elements: the calling thread runs it.
  kChangesStorage = 2,
  /// Tagged as random, but draws no number as it is called here.
  kNotRandom = 4,
  /// Its meta function checks all sizes and integers: a probe need not cover them.
  kMetaChecksAll = 8,
  /// Numbers among its arguments go with the sizes of its tensors: it cannot be tried on smaller
  /// ones.
  kNeedsSizes = 512,
  /// Its floating-point numbers only scale, and change from call to call.
  kNumbersScale = 16,
  /// The kernel iterates over elements, but does not write an output of any strides, or
  kIgnoresOutStrides = 32,
  /// does not iterate over elements, but writes them: Note [Outputs of any strides].
  kWritesAnyStrides = 64,
  /// The kernel gives an output the size of the inputs while it computes, and then its own again:
  /// it always computes apart.
  kResizesOutputs = 128,
  /// The kernel reads its tensors as if they were contiguous.
  kTakesContiguous = 256,
};

/// Whether an operator, by its name with overload ("aten::add.Tensor"), has a quirk.
bool has_quirk(const char* op, Quirk quirk);

/// Whether the kernel writes this argument although the schema does not say so.
bool writes_undeclared(const char* op, const char* argument);

/// Whether this argument may be a CPU tensor although the others are on a device, as with CUDA.
/// Operators that are not PyTorch's own may take any.
bool takes_cpu_tensors(const char* op, const char* argument);

}  // namespace openreg::ops
