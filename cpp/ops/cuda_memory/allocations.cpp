#include "ops/cuda_memory/allocations.h"

#include <array>

#include "ops/cuda_memory/formulas.h"

namespace openreg::ops::cuda_memory {

namespace {

using enum Certainty;

constexpr std::string_view kWorkspace =
    "32 MiB for compute capability 9, 10 and 12, otherwise 8.125 MiB, once for each host thread "
    "and stream; each factor whose rows and columns are not contiguous is copied";
constexpr std::string_view kAttention =
    "native/transformers/cuda/attention.cu, native/transformers/cuda/attention_backward.cu";

constexpr auto kTable = std::to_array<Allocation>({
    // Products
    {"mm addmm bmm baddbmm addbmm _addmm_activation _int_mm _scaled_mm", "workspace of cuBLAS",
     kWorkspace, "cuda/CublasHandlePool.cpp, native/cuda/Blas.cpp, native/cuda/cuBlasCommonArgs.h",
     kExact, &allocate_for_product},
    {"addmv", "workspace of cuBLAS", "as for mm", "native/cuda/Blas.cpp", kExact,
     &allocate_for_matrix_vector_product},
    {"dot vdot", "workspace of cuBLAS", "as for mm", "native/cuda/Blas.cpp", kExact,
     &allocate_for_dot_product},
    {"_grouped_mm _scaled_grouped_mm", "workspace of CUTLASS", "",
     "native/cuda/GroupMM.cu, native/cuda/ScaledGroupMM.cu", kUnknown},
    {"_cdist_forward _cdist_backward", "product of points, or none", "", "native/Distance.cpp",
     kUnknown},

    // Attention
    {"_scaled_dot_product_flash_attention", "splits of keys for short queries",
     "splits x batch x heads x queries x (width, in multiples of 32 up to 128 and of 64 above, + "
     "1) "
     "x 4",
     "native/transformers/cuda/flash_attn/flash_api.cpp"},
    {"_scaled_dot_product_flash_attention_backward",
     "sums in float32, and gradients for each head of the query",
     "batch x heads x (queries in multiples of 128) x (width, in multiples of 32 up to 128 and of "
     "64 above, + 1) x 4; with fewer heads of keys 2 x batch x keys x heads x width in the query's "
     "dtype; copies of a gradient and an output that are not contiguous",
     "native/transformers/cuda/flash_attn/flash_api.cpp"},
    {"_scaled_dot_product_efficient_attention", "sums in float32",
     "batch x queries x heads x width x 4, for half precision with width above 128", kAttention},
    {"_scaled_dot_product_efficient_attention_backward", "workspace and row sums",
     "for each batch and head one float32 for each row, and blocks of sums as the kernel chosen by "
     "dtype, width and compute capability has them",
     "native/transformers/cuda/mem_eff_attention/kernel_backward.h, kernels/cutlassB.h"},
    {"_scaled_dot_product_cudnn_attention", "workspace of cuDNN", "", "native/cudnn/MHA.cpp",
     kUnknown},
    {"_scaled_dot_product_cudnn_attention_backward", "workspace of cuDNN",
     "at least batch x heads x queries x (width + 1) x 4; with fewer heads of keys also their "
     "gradients for each head of the query",
     "native/cudnn/MHA.cpp", kEstimate},

    // Convolutions and recurrent networks
    {"convolution convolution_overrideable conv2d", "workspace of cuDNN",
     "between none and copies of all tensors in float32", "native/cudnn/Conv_v8.cpp", kUnknown,
     &note_convolution},
    {"convolution_backward convolution_backward_overrideable", "workspace of cuDNN",
     "the same; the buffers of the sum that is the gradient of the bias",
     "native/cudnn/Conv_v8.cpp", kUnknown, &allocate_for_convolution_backward},
    {"native_batch_norm native_batch_norm_backward _batch_norm_with_update", "workspace of cuDNN",
     "", "native/cudnn/BatchNorm.cpp", kUnknown},
    {"lstm* gru* rnn_tanh* rnn_relu* mkldnn_rnn_layer*", "reserve and workspace of cuDNN", "",
     "native/cudnn/RNN.cpp", kUnknown},
    {"_ctc_loss _ctc_loss_backward", "workspace of cuDNN, or none", "",
     "native/cuda/LossCTC.cu, native/cudnn/LossCTC.cpp", kUnknown},

    // Reductions
    {"sum mean prod nansum amax amin aminmax argmax argmin max min any all linalg_vector_norm norm "
     "var std var_mean std_mean",
     "partial results of blocks of threads",
     "if several blocks share an output: outputs x blocks x bytes of a partial result (x threads x "
     "vector, if rows of outputs are contiguous), and 4 for each group of blocks; integers of "
     "other "
     "dtypes are converted first",
     "native/cuda/Reduce.cuh", kExact, &allocate_for_reduction},

    {"_foreach_norm", "norms of chunks", "tensors x (elements of the largest / 65536) x 4",
     "native/cuda/ForeachReduceOp.cu"},

    // Normalisations
    {"native_layer_norm_backward", "partial gradients of weights",
     "with more than 65536 rows of less than 16 x multiprocessors elements: rows / 32 x width for "
     "each gradient",
     "native/cuda/layer_norm_kernel.cu", kExact, &allocate_for_layer_norm_backward},
    {"_fused_rms_norm_backward", "partial gradients of weights",
     "as for native_layer_norm_backward", "native/cuda/layer_norm_kernel.cu", kExact,
     &allocate_for_rms_norm_backward},
    {"native_group_norm", "scales and shifts", "2 x batch x channels x 4",
     "native/cuda/group_norm_kernel.cu", kExact, &allocate_for_group_norm},
    {"native_group_norm_backward", "sums for channels and groups",
     "(3 x channels + 2 x groups) x batch x 4", "native/cuda/group_norm_kernel.cu", kExact,
     &allocate_for_group_norm_backward},

    // Look-ups
    {"embedding_dense_backward", "sorted indices and partial sums",
     "above 3072 indices: (indices / 10 + segments) x width x 4, where segments is the smaller of "
     "indices and rows of the weight; 9 arrays of indices; without CUB's counters",
     "native/cuda/Embedding.cu, native/cuda/EmbeddingBackwardKernel.cu", kEstimate,
     &allocate_for_embedding_backward},
    {"index_put index_put_ _index_put_impl_", "sorted indices",
     "if it accumulates: 6 arrays of int64; copies of operands that are not contiguous; without "
     "CUB's counters",
     "native/cuda/Indexing.cu", kEstimate, &allocate_for_index_put},

    // Sorts and scans
    {"sort argsort", "second copies of keys and indices",
     "for rows above 4096: 2 to 4 arrays of int64 and one of the input; without CUB's counters",
     "native/cuda/Sort.cpp, native/cuda/SortStable.cu", kEstimate, &allocate_for_sort},
    {"topk", "counters of digits, or a whole sort",
     "for long rows: 512 for each block of threads and 4 numbers for each row; without CUB's scans",
     "native/cuda/TensorTopK.cpp, native/cuda/TensorTopK.cu", kEstimate, &allocate_for_topk},
    {"randperm randperm_of_few", "keys and indices",
     "2 copies of keys and of indices, and one of "
     "each for the sort; without CUB's counters",
     "native/cuda/Randperm.cu", kEstimate, &allocate_for_randperm},
    {"multinomial.out", "copies of the distribution", "3 x the probabilities",
     "native/cuda/MultinomialKernel.cu", kExact, &allocate_for_multinomial},
    {"cumsum cumprod logcumsumexp", "temporary storage of CUB", "kilobytes, for one row",
     "native/cuda/ScanUtils.cuh", kUnknown},
    {"nonzero masked_select unique* _unique* unique_consecutive bincount histc mode kthvalue "
     "median "
     "nanmedian",
     "temporary storage of CUB and of sorts", "", "native/cuda/Nonzero.cu, native/cuda/Unique.cu",
     kUnknown},

    // Solvers
    {"linalg_* _linalg_* cholesky* lu_* triangular_solve ormqr geqrf", "workspace of cuSOLVER", "",
     "native/cuda/linalg/BatchLinearAlgebra.cpp", kUnknown},
    {"_fft_*", "workspace of cuFFT", "", "native/cuda/SpectralOps.cpp", kUnknown},
});

}  // namespace

std::span<const Allocation> all_allocations() { return kTable; }

}  // namespace openreg::ops::cuda_memory
