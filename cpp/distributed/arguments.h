#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "distributed/process_group.h"

namespace openreg::distributed {

// Checks of a collective's arguments. Each throws ValueError or TypeError, with the collective's
// name.

/// Returns the device of the tensors, which must be dense, on one openreg device, and have all
/// their memory.
c10::Device device_of(const Collective& what, std::initializer_list<at::TensorList> lists);

/// Returns the only tensor, or the only list of tensors, that this rank passes.
const at::Tensor& only(const Collective& what, const std::vector<at::Tensor>& tensors);
const std::vector<at::Tensor>& only(const Collective& what,
                                    const std::vector<std::vector<at::Tensor>>& lists);

/// The bytes of the elements of all tensors.
std::int64_t bytes_in(at::TensorList tensors);

/// Whether all have as many elements as `like`.
bool same_numel(at::TensorList tensors, const at::Tensor& like);

/// Expects tensors of `like`'s shape and dtype.
void expect_like(const Collective& what, at::TensorList tensors, const at::Tensor& like);
/// Expects a tensor each of whose elements has its own memory.
void expect_no_overlap(const at::Tensor& output);

/// Expects as many elements in a list as the group has ranks.
void expect_one_for_each_rank(const Collective& what, std::size_t count, int size);
void expect_as_many(const Collective& what, at::TensorList outputs, at::TensorList inputs);
void expect_same_dtype(const Collective& what, const at::Tensor& a, const at::Tensor& b);
/// Expects `larger` to have `size` times the elements of `smaller`.
void expect_times(const Collective& what, const at::Tensor& larger, const at::Tensor& smaller,
                  int size);

}  // namespace openreg::distributed
