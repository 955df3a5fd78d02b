#pragma once

#include <type_traits>

#include "ops/launch/launch.h"
#include "ops/wire/typed_arguments.h"

namespace openreg::ops {

/// A function of CPU tensors and values as a kernel. Its parameters are the arguments of the
/// command, in this order; those of type at::Tensor& are written, and have their shapes before the
/// launch.
template <auto kFunction>
class FunctionKernel;
template <class... A, void (*kFunction)(A...)>
class FunctionKernel<kFunction> {
 public:
  explicit FunctionKernel(const char* name, ArgumentSupport support = ArgumentSupport::kProbed)
      : kernel_(name, &run), support_(support) {}

  /// Launches it with tensors of `device`.
  void launch(c10::Device device, const std::remove_cvref_t<A>&... arguments) const {
    ArgumentWriter writer(kernel_.name(), device);
    (write<A>(writer, arguments), ...);
    ops::launch(kernel_, writer, support_);
  }

 private:
  static void run(const OpKernel&, ArgumentReader& reader) {
    KernelCall<void(A...)>::run(reader, kFunction);
  }

  template <class T, class V>
  static void write(ArgumentWriter& writer, const V& value) {
    if constexpr (std::is_same_v<T, at::Tensor&>) {
      writer.tensor(value, Access::kWrite);
    } else {
      ArgumentOf<T>::write(writer, value);
    }
  }

  const OpKernel kernel_;
  const ArgumentSupport support_;
};

}  // namespace openreg::ops
