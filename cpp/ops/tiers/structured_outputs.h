#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorOptions.h>

#include <cstddef>
#include <string_view>
#include <tuple>

namespace openreg::ops {

/// "aten::add.Tensor", as a string that lives as long as the process.
const char* operator_name(const char* name, const char* overload);

/// "add" of "aten::add".
constexpr const char* base_name(const char* qualified) {
  return qualified + std::string_view("aten::").size();
}

/// The requests of a meta function for outputs, in the three forms of an operator. The rules and
/// the messages are those of the wrappers that PyTorch generates for its own backends.
at::Tensor make_output(at::IntArrayRef sizes, at::IntArrayRef strides,
                       const at::TensorOptions& options);
void resize_output(const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides,
                   const at::TensorOptions& options);
void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options);

template <class Outputs>
constexpr std::size_t output_count() {
  return std::tuple_size_v<Outputs>;
}
template <>
constexpr std::size_t output_count<at::Tensor>() {
  return 1;
}

}  // namespace openreg::ops
