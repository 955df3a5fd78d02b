#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

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

  /// Launches the kernel with tensors of `device`.
  void launch(c10::Device device, const std::remove_cvref_t<A>&... arguments) const {
    ArgumentWriter writer(kernel_.name(), device);
    write_all(writer, std::index_sequence_for<A...>(), arguments...);
    ops::launch(kernel_, writer, support_);
  }

 private:
  static void run(const OpKernel&, ArgumentReader& reader) {
    KernelCall<void(A...)>::run(reader, kFunction);
  }

  template <class T>
  static constexpr bool kIsOutput = std::is_same_v<T, at::Tensor&>;
  template <class T>
  static constexpr bool kIsInput =
      std::is_same_v<T, const at::Tensor&> ||
      std::is_same_v<std::remove_cvref_t<T>, std::optional<at::Tensor>>;

  /// For each parameter, its number among the inputs, or the outputs.
  static constexpr auto numbers() {
    std::array<std::uint16_t, sizeof...(A)> all{};
    std::uint16_t inputs = 0;
    std::uint16_t outputs = 0;
    std::size_t i = 0;
    ((all[i++] = kIsOutput<A> ? outputs++ : kIsInput<A> ? inputs++ : std::uint16_t{0}), ...);
    return all;
  }

  template <std::size_t... I>
  static void write_all(ArgumentWriter& writer, std::index_sequence<I...>,
                        const std::remove_cvref_t<A>&... arguments) {
    constexpr auto kNumbers = numbers();
    (write<A>(writer, kNumbers[I], arguments), ...);
  }

  template <class T, class V>
  static void write(ArgumentWriter& writer, std::uint16_t number, const V& value) {
    if constexpr (kIsOutput<T>) {
      writer.at_argument(ArgumentPlace::kOutput, number);
      writer.tensor(value, Access::kWrite);
    } else {
      if constexpr (kIsInput<T>) writer.at_argument(ArgumentPlace::kInput, number);
      ArgumentOf<T>::write(writer, value);
    }
  }

  const OpKernel kernel_;
  const ArgumentSupport support_;
};

}  // namespace openreg::ops
