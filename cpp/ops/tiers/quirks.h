#pragma once

#include <ATen/core/function_schema.h>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

namespace openreg::ops {

/// Behaviour of operators that neither their schema nor their tags show.
enum class Quirk : std::uint8_t {
  /// The shape of a result, or whether the call is refused, depends on the values of elements, or
  /// the kernel cannot be tried on smaller tensors: the calling thread runs it.
  kDataDependent,
  /// It changes the storage of an argument, not its elements: the calling thread runs it.
  kChangesStorage,
  /// Tagged as random, but draws no number as it is called here.
  kNotRandom,
  /// The meta function checks all sizes and integers: a probe need not cover them.
  kMetaChecksAll,
  /// Numbers among its arguments go with the sizes of its tensors: it cannot be tried on smaller
  /// ones.
  kNumbersMatchSizes,
  /// Floating-point numbers among the arguments only scale, and change from call to call.
  kNumbersScale,
  /// An exception for output_support(): the kernel iterates over elements, but ignores the strides
  /// of an output.
  kIgnoresOutStrides,
  /// An exception for output_support(): the kernel does not iterate over elements, but respects the
  /// strides of an output.
  kWritesAnyStrides,
  /// An exception for output_support(): the kernel gives an output the size of the inputs while it
  /// computes, and then its own again.
  kResizesOutputs,
  /// The kernel keeps what its gradient needs only if gradients are recorded. Always: the operator
  /// is called where they are.
  kRecordsGradient,
  /// The kernel reads its tensors as if they were contiguous.
  kTakesContiguous,
  /// The kernels for dtypes of half precision are scalar, except with instructions for them. See
  /// Note [Half precision].
  kSlowInHalf,
  /// The kernels for dtypes of half precision are scalar on every processor.
  kScalarInHalf,
};

/// Whether an operator, by its name with overload ("aten::add.Tensor"), has a quirk.
bool has_quirk(const char* op, Quirk quirk);

/// The dtypes that the operator computes in wider ones on this processor. See Note [Half
/// precision].
std::span<const c10::ScalarType> widened_dtypes(const char* op);

/// Which outputs the kernel may be given; for others it computes into a temporary one. See Note
/// [Outputs of any strides].
enum class OutputSupport : std::uint8_t { kNone, kDefaultStrides, kAnyStrides };
/// `iterates`: the kernel is a loop over an iterator, which respects strides.
OutputSupport output_support(const char* op, bool iterates);

/// Whether the operator writes this argument: its schema says so, or the kernel does it all the
/// same.
bool is_written(const char* op, const c10::Argument& argument);

/// Whether this argument may be a CPU tensor although the others are on a device, as with CUDA.
/// Operators that are not PyTorch's own may take any.
bool takes_cpu_tensors(const char* op, const char* argument);

}  // namespace openreg::ops
