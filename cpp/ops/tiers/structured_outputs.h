#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>

namespace openreg::ops {

/// "aten::add.Tensor", as a string that lives as long as the process.
const char* operator_name(const char* name, const char* overload);

/// "add" of "aten::add".
constexpr const char* base_name(const char* qualified) {
  return qualified + std::string_view("aten::").size();
}

/// Where a structured operator's outputs come from.
enum class Form {
  kFunctional,  // made here
  kOut,         // given by the caller, and resized
  kInplace,     // the first argument
  kCached,      // those of a command, which was launched by one of the forms above
};

/// The outputs of a call, and what a meta function requests of them. The rules and the messages are
/// those of the wrappers that PyTorch generates for its own backends.
class OutputRequests {
 public:
  /// \param outputs must outlive this; undefined tensors for the functional form.
  OutputRequests(Form form, std::span<at::Tensor> outputs) : form_(form), outputs_(outputs) {}

  /// \param exactly the kernel can write to no other strides.
  void set(std::int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides,
           const at::TensorOptions& options, bool exactly);
  const at::Tensor& output(std::int64_t i) const { return outputs_[static_cast<std::size_t>(i)]; }

  /// Whether the outputs of a command are what was requested.
  bool are_met() const { return are_met_; }

 private:
  const Form form_;
  const std::span<at::Tensor> outputs_;
  bool are_met_ = true;
};

template <class Outputs>
constexpr std::size_t output_count() {
  return std::tuple_size_v<Outputs>;
}
template <>
constexpr std::size_t output_count<at::Tensor>() {
  return 1;
}

}  // namespace openreg::ops
