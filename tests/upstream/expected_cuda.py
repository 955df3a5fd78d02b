"""Which tests of PyTorch's suite may fail on the device of openreg-cuda, as in `expected.py`.

The files of 2.13 were not at hand. On torch 2.13 were run: `test_cuda` of 2.1's development, which includes the tests
of several devices; and the other files as of August 2026, in the copy of Intel's project for XPU, which asks for
`GPU_TYPE` (`--gpu`) or names its device (`--vendor xpu`), and in that of Huawei's for NPU (`--vendor npu`, where its
decorators for PrivateUse1 were changed to CUDA's). With the files of 2.13, what is of another version has to leave the
lists.

A test expects CUDA's sentences. An error of the expected type may have this project's sentence instead.
"""

from __future__ import annotations

LIBRARY = "needs a library of NVIDIA: cuBLAS, cuSPARSE, NVML or the runtime"
REGISTERED = "cudaHostRegister accepts memory and pins nothing"
UNUSED = "synchronize() does nothing before the first use of the device, and is not traced then"
BLOCKS = "counts blocks and segments of CUDA's allocator"
CONTEXT = "C++ frames, and the history of a block, are not in snapshots"
SLOW = "takes longer than the limit: work for a GPU"
ASYNCHRONOUS = "only the elements show it: the error comes with the next wait"
RACE = "a race of PyTorch's: on streams of its own, a function of several devices has gradients on the default stream"
OTHER_VERSION = "of another version: what it calls is different in 2.13"
COPY = "what was changed for another device does not hold for CUDA, or needs torch.accelerator of a later version"
JITERATOR = "a kernel in CUDA C++"
NUMPY = "NumPy or SciPy of this environment has changed"
FORKS = "unlike CUDA, counting devices does not keep a process from forking"
OPEN = "open: the reason has not been found yet"

EXPECTED_ON_CUDA: dict[str, dict[str, str]] = {
    "test_cuda.py": {
        "::test_cublas_allow_": OTHER_VERSION,
        "::test_cublas_workspace_explicit_allocation": LIBRARY,
        "::test_cusparse_multiple_threads_same_device|::test_cuda_kernel_loop_overflow$": SLOW,
        "::test_cudart_register": REGISTERED,
        "::test_graph_error|::test_graph_warn_if_has_zero_nodes": "the sentence, or the warning, is not CUDA's",
        "::test_graph_memory_stats_and_use_result_after_destroy_graph": BLOCKS,
        "::test_out_of_memory$": "sizes go beyond GiB in the sentence",
        "::test_allocator_settings": OTHER_VERSION,
        "::test_cpp_memory_snapshot_pickle": "includes a header whose functions are in libtorch_cuda",
        "::test_memory_(snapshot|plots)": CONTEXT,
        "::test_memory_profiler_viz": OPEN,
        "TestBlockStateAbsorption::test_allocate_in_thread_to_pool": OTHER_VERSION,
    },
    "test_torch.py": {
        "::test_addcmul_cuda_errors_with_cpu_scalars_": "takes numbers on the CPU in more places",
        "::test_cuda_vitals_gpu_only_": OTHER_VERSION,
        "::test_tensor_type_|TestTorch::test_print$": COPY,
        "::test_sync_warning_": "a mask on the device, or indices on the CPU, are assigned to without a wait",
    },
    "test_nn.py": {
        "::test_ctc_loss_cudnn_tensor_|::test_(GRU|LSTM)_grad_and_gradgrad_": "asks for cuDNN's, or for its refusal",
        "::test_broadcast_double_backwards_gpu": RACE,
    },
    "test_autograd.py": {
        "::test_gradcheck_get_(numerical|analytical)_jacobian|::test_naughty_autograd_function_": OTHER_VERSION,
        "::test_profiler_(function_event_avg|emit_nvtx)": COPY,
        "::test_function$": "compares with a file that was not at hand",
        "::test_reentrant_parent_error_on_cpu_": "two threads raise, and the one that a GPU delays is the first",
    },
    "test_tensor_creation_ops.py": {
        "::test_signal_window_functions_|::test_kaiser_window_": NUMPY,
        "::test_normal_std_error_": ASYNCHRONOUS,
        "::test_randperm_device_compatibility_": "takes no generator of another device, where CUDA's does",
    },
    "test_type_promotion.py": {
        "::test_sparse_(add|sub)_": "the CPU adds no sparse tensors of half precision",
        "::test_cat_out_different_dtypes_": OTHER_VERSION,
    },
    "test_transformers.py": {
        "::test_mem_efficient_attention_|::test_fused_kernels_": "kernels of a GPU, and the numbers that they draw",
        "::test_fused_inputs_dim_3_": "the CPU's kernel refuses three dimensions by an error, not by a warning",
    },
    "test_unary_ufuncs.py": {
        "_jiterator_": JITERATOR,
    },
    "test_binary_ufuncs.py": {
        "_jiterator_": JITERATOR,
        "::test_reference_numerics_.*_complex32": NUMPY,
        "::test_pow_cuda_complex_extremal_failing": "expects a GPU's wrong result",
    },
    "test_embedding.py": {
        "::test_EmbeddingBag_per_sample_weights_failures_": "weights of another dtype: the CPU's error, in other words",
    },
    "test_convolution.py": {
        "::test_Conv2d_size_1_kernel_": "sets an option of another vendor's device",
    },
    "test_multihead_attention.py": {
        "::test_multihead_self_attn_two_masks_fast_path_mock_": OTHER_VERSION,
    },
    "test_foreach.py": {
        "::test_binary_op_float_inf_nan": "finds CUDA's kernels by their names in a profile",
        "::test_foreach_(l2_large_value|reduce_large)_input|::test_unary_op_tensors_on_different_": OTHER_VERSION,
    },
    "test_linalg.py": {
        "::test__int_mm_k_": OTHER_VERSION,
    },
    "test_nestedtensor.py": {
        "::test_bmm_cuda_": OTHER_VERSION,
    },
    "test_spectral_ops.py": {
        "::test_fft_half_and_chalf_not_power_of_two_error_": "transforms take all sizes",
    },
    "test_sparse_csr_xpu.py": {
        "::test_block_addmm_.*_float16": "the last bit: what is expected was rounded more often",
    },
    "test_sparse.py": {
        "::test_cuda_sparse_cpu_dense_add": COPY,
    },
    "test_cudagraph_trees.py": {
        "::test_(aliasing_static_ref|forward_generation|single_stream_use)$": OTHER_VERSION,  # gradients accumulate
        "::test_(warnings_on_dealloc|forward_backward|forward_with_skipped_cudagraphed_backward)$": OTHER_VERSION,
        "::test_checkpoint_shared_output_storage_deallocation$": "finds a block of a test that failed before it",
    },
    "test_cuda_trace.py": {
        "::test_device_synchronization_callback": UNUSED,
    },
    "test_cuda_nvml_based_avail.py": {
        "::test_cuda_is_available_": FORKS,
    },
    "test_cuda_multigpu.py": {
        "::test_caching_pinned_memory_multi_gpu|::test_get_set_rng_state_all|::test_default_stream": COPY,
        "::test_cuda_device_memory_allocated|::test_events_wait|::test_stream_context": COPY,
        "::test_stream_event_nogil|::test_streaming_backwards_device_transfer|::test_streams_multi_gpu_query": COPY,
        "::test_gather|::test_memory_stats": COPY,
    },
}
