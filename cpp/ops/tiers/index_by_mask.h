#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <utility>

#include "ops/tiers/structured_outputs.h"

namespace openreg::ops {

/// The elements of self at which the only index, a mask of its size, is true: `index` would need
/// two commands for them. Nothing if the indices are others.
std::optional<at::Tensor> selected_by_mask(const at::Tensor& self,
                                           const c10::List<std::optional<at::Tensor>>& indices);

/// Indices of `self` in which each mask of bools is replaced by the indices of its true elements:
/// for one on the device the host waits for their number here, and then the call is planned as any
/// other. Masks that do not fit stay, for ATen to refuse them.
c10::List<std::optional<at::Tensor>> without_masks(
    const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices);

/// Specialised for signatures whose operators differ from all others in a call. The primary
/// template changes nothing.
template <class Signature>
struct SignatureOverride {
  /// Answers the call without a plan, and returns true; false if the call goes on as others do.
  template <class Outputs, class... A>
  static constexpr bool answers(Form, Outputs&, const A&...) {
    return false;
  }
  /// Returns what replaces an argument, given all arguments, so that a signature can tell calls
  /// apart.
  template <class T, class... All>
  static constexpr const T& argument(const T& argument, const All&...) {
    return argument;
  }
};

/// Indexing with masks, as index() and its out form do.
template <>
struct SignatureOverride<at::Tensor(const at::Tensor&, const c10::List<std::optional<at::Tensor>>&)>
    : SignatureOverride<void()> {
  using Indices = c10::List<std::optional<at::Tensor>>;

  static bool answers(Form form, std::array<at::Tensor, 1>& outputs, const at::Tensor& self,
                      const Indices& indices) {
    if (form != Form::kFunctional) return false;
    auto selected = selected_by_mask(self, indices);
    if (selected) outputs[0] = std::move(*selected);
    return selected.has_value();
  }
  using SignatureOverride<void()>::argument;
  static Indices argument(const Indices& indices, const at::Tensor& self, const Indices&) {
    return without_masks(self, indices);
  }
};

}  // namespace openreg::ops
