#pragma once

#include "ops/cuda_memory/call.h"
#include "ops/cuda_memory/scratch.h"

// The functions of the table in allocations.cpp. Each allocates and frees what CUDA's code does, in
// its order. Each family is a source file of this folder.
namespace openreg::ops::cuda_memory {

// products.cpp
void allocate_for_product(const Call& call, Scratch& scratch);
void allocate_for_matrix_vector_product(const Call& call, Scratch& scratch);
void allocate_for_dot_product(const Call& call, Scratch& scratch);

// reductions.cpp
void allocate_for_reduction(const Call& call, Scratch& scratch);
/// For a reduction by the operator `op`, within another one, over the dimensions `dims`.
void allocate_for_reduction_of(const at::Tensor& input, const at::Tensor& result,
                               at::IntArrayRef dims, std::string_view op, Scratch& scratch);

// convolutions.cpp
/// Allocates nothing: see ConvolutionUse.
void note_convolution(const Call& call, Scratch& scratch);
/// The gradient of the bias is a sum.
void allocate_for_convolution_backward(const Call& call, Scratch& scratch);

// normalizations.cpp
void allocate_for_layer_norm_backward(const Call& call, Scratch& scratch);
void allocate_for_rms_norm_backward(const Call& call, Scratch& scratch);
void allocate_for_group_norm(const Call& call, Scratch& scratch);
void allocate_for_group_norm_backward(const Call& call, Scratch& scratch);

// sorting.cpp
void allocate_for_sort(const Call& call, Scratch& scratch);
void allocate_for_topk(const Call& call, Scratch& scratch);
void allocate_for_randperm(const Call& call, Scratch& scratch);
void allocate_for_multinomial(const Call& call, Scratch& scratch);

// look_ups.cpp
void allocate_for_embedding_backward(const Call& call, Scratch& scratch);
void allocate_for_index_put(const Call& call, Scratch& scratch);

}  // namespace openreg::ops::cuda_memory
