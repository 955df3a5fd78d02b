"""Where PyTorch's Python code has a branch for CUDA that a build without CUDA cannot run. Each patch states its reason.

Functions that `AT_ONCE` names get the device's module and its extension module; those that `WHEN_IMPORTED` names get
the module of PyTorch that has been imported.
"""

from __future__ import annotations

import contextvars
import ctypes
import functools
import importlib
import logging
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from multiprocessing.reduction import ForkingPickler
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from . import _events, _extensions, _options, _process_group, _unsupported

log = logging.getLogger("torch_openreg")

# Each patch: a module of PyTorch, after whose import it is applied, and the function of this module that applies it.
WHEN_IMPORTED = (
    ("torch._inductor.utils", "generate_cpp"),
    ("torch._inductor.config", "choose_cpp"),
    ("torch._inductor.scheduler", "schedule_cpp"),
    ("torch._inductor.scheduler", "capture_cpp"),
    ("torch._inductor.lowering", "capture_no_branches"),
    ("torch._inductor.cudagraph_trees", "capture_unguarded"),
    ("torch.distributed.distributed_c10d", "register_nccl"),
    ("torch.multiprocessing.reductions", "share_tensors"),
    ("torch.utils.cpp_extension", "refuse_extensions"),
)
# The same for modules of other libraries, which may not be installed.
OF_OTHER_LIBRARIES = (("triton.runtime.driver", "refuse_triton"),)
# The same for `torch`, whose import is nearly over.
AT_ONCE = (
    "keep_operators",
    "report_cuda_build",
    "allocate_storages",
    "refuse_ipc_handles",
    "accept_types",
    "add_attributes",
    "add_runtime",
    "list_activities",
    "hide_addresses",
    "replace_foreign_kernels",
    "refuse_kernel_sources",
    "script_originals",
    "make_events",
    "report_no_cudnn",
)


# What torch.cuda had in place of the device's functions.
originals: dict[str, Any] = {}


def apply(module: ModuleType, _C: Any) -> None:
    """Applies all patches. Called once, when the device is loaded."""
    when_imported = importlib.import_module(".device._pytorch.post_import", __package__).when_imported
    for name in AT_ONCE:
        globals()[name](module, _C)
    for target, name in (*WHEN_IMPORTED, *OF_OTHER_LIBRARIES):
        when_imported(target, globals()[name])


def keep_operators(module: ModuleType, _C: Any) -> None:
    # On import, a build with CUDA replaces some operators by kernels for a GPU: in Triton or CUTLASS, if installed.
    registry = importlib.import_module("torch._native.registry")
    registry.deregister_op_overrides(disable_dispatch_keys="CUDA")


def report_cuda_build(module: ModuleType, _C: Any) -> None:
    # Programs and PyTorch ask whether torch has CUDA, and which.
    cuda: Any = torch.cuda
    torch._C._has_cuda = True
    torch.version.cuda = "13.0"
    torch.backends.cuda.is_built = lambda: True
    cuda._is_compiled = lambda: True
    cuda._lazy_seed_tracker = None
    cuda.is_bf16_supported = lambda including_emulation=True: True
    cuda._raw_device_count_nvml = lambda: _options.all_devices() or _C.device_count()
    cuda._get_nvml_device_index = lambda device: cuda._utils._get_device_index(device, optional=True)


def allocate_storages(module: ModuleType, _C: Any) -> None:
    # Both are compiled out of libtorch_python.
    new, resize = torch.UntypedStorage.__new__, torch.UntypedStorage.resize_

    @functools.wraps(new)
    def __new__(cls: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return new(cls, *args, **({} if device is None else {"device": device}), **kwargs)
        if len(args) > 1 or (args and not isinstance(args[0], int)):  # a sequence, or what the CPU's refuses
            elements = new(cls, *args, **kwargs)
            return torch.empty(len(elements), dtype=torch.uint8, device=device).untyped_storage().copy_(elements)
        size = args[0] if args else kwargs.get("size", 0)
        return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()

    @functools.wraps(resize)
    def resize_(self: Any, size: int) -> Any:
        if self.device.type != "cuda":
            return resize(self, size)
        _C.resize_storage(self, size)
        return self

    torch.UntypedStorage.__new__ = __new__  # type: ignore[method-assign]
    torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign]


def refuse_ipc_handles(module: ModuleType, _C: Any) -> None:
    # They would say that CUDA is not available. Tensors are sent to other processes without them (share_tensors).
    storage: Any = torch.UntypedStorage
    reason = "CUDA IPC handles are not emulated; send tensors with torch.multiprocessing"

    def _share_cuda_(self: Any) -> Any:
        if self.device.type != "cuda":
            raise RuntimeError("_share_cuda_: only available on CUDA")
        return _unsupported.refusal("torch.UntypedStorage._share_cuda_", reason)()

    storage._share_cuda_ = _share_cuda_
    for name in ("_new_shared_cuda", "_release_ipc_counter_cuda"):
        setattr(storage, name, _unsupported.refusal(f"torch.UntypedStorage.{name}", reason))


def accept_types(module: ModuleType, _C: Any) -> None:
    # Tensor.type("torch.cuda.FloatTensor"): PyTorch knows these types only if it was built with CUDA, and lists them.
    # Those of torch.cuda.sparse it knows, and refuses to make a tensor of them.
    original = torch.Tensor.type
    types = {f"torch.cuda.{name}": kind for name, kind in module.legacy.TYPES.items() if name.endswith("Tensor")}
    listed = {f"{kind.__module__}.{kind.__name__}": kind for kind in torch._tensor_classes}
    for name, kind in listed.items():
        if name.startswith("torch.cuda.sparse."):
            prefix = kind.__name__.removesuffix("Tensor")
            types[name] = module.legacy.tensor_type(prefix, kind.dtype, "torch.cuda.sparse", torch.sparse_coo)
            setattr(torch.cuda.sparse, kind.__name__, types[name])
    for name, kind in types.items():
        kind.is_cuda, kind.is_xpu, kind.is_sparse_csr = True, False, False
        torch._tensor_classes.discard(listed[name])
        torch._tensor_classes.add(kind)

    @functools.wraps(original)
    def type_(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        kind = types.get(dtype, dtype) if isinstance(dtype, str) else dtype
        if kind in types.values() and kind.is_sparse:
            return original(self, f"torch.cuda.sparse.{kind.__name__}", non_blocking, **kwargs)
        if kind in types.values():
            device = self.device if self.is_cuda else "cuda"
            return self.to(device, kind.dtype, non_blocking=non_blocking)
        return original(self) if dtype is None else original(self, dtype, non_blocking, **kwargs)

    torch.Tensor.type = type_  # type: ignore[method-assign, assignment]


def add_attributes(module: ModuleType, _C: Any) -> None:
    # What only CUDA's streams have. The handle of the default stream is 0.
    def handle_of(stream: Any) -> int:
        return int(stream.native_handle) if stream.stream_id else 0

    module.Stream.cuda_stream = property(handle_of)
    module.Stream._as_parameter_ = property(lambda self: ctypes.c_void_p(handle_of(self)))
    module.Stream.__repr__ = lambda self: f"<torch.cuda.Stream device={self.device} cuda_stream={handle_of(self):#x}>"


_ERRORS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    719: "unspecified launch failure",
    900: "operation not permitted when stream is capturing",
}


def add_runtime(module: ModuleType, _C: Any) -> None:
    # torch.cuda.cudart(): the few functions of CUDA's runtime that PyTorch binds.
    class cudaError(int):
        success = 0

    streams: dict[int, Any] = {}  # by handle

    def succeed(*args: Any) -> cudaError:
        return cudaError(0)

    def create_stream(address: int) -> cudaError:
        stream = module.Stream()
        streams[stream.cuda_stream] = stream
        ctypes.c_size_t.from_address(address).value = stream.cuda_stream
        return cudaError(0)

    def destroy_stream(handle: int) -> cudaError:
        invalid = 400
        return cudaError(0 if streams.pop(handle, None) is not None else invalid)

    runtime = SimpleNamespace(
        cudaError=cudaError,
        cudaGetErrorString=lambda error: _ERRORS.get(int(error), "unrecognized error code"),
        cudaProfilerStart=succeed,
        cudaProfilerStop=succeed,
        cudaHostRegister=succeed,
        cudaHostUnregister=succeed,
        cudaStreamCreate=create_stream,
        cudaStreamDestroy=destroy_stream,
        cudaMemGetInfo=module.mem_get_info,
    )
    cuda: Any = torch.cuda
    cuda._cudart = runtime
    torch._C._cudart = runtime  # type: ignore[attr-defined]
    cuda.cudart = lambda: runtime


def list_activities(module: ModuleType, _C: Any) -> None:
    # torch.profiler asks Kineto, which was built without CUDA.
    listed = {*torch.autograd._supported_activities(), torch.profiler.ProfilerActivity.CUDA}

    def supported_activities() -> set[Any]:
        return set(listed)

    torch._C._autograd._supported_activities = supported_activities
    for each in list(sys.modules.values()):
        if getattr(each, "__name__", "").startswith("torch") and "_supported_activities" in vars(each):
            each._supported_activities = supported_activities  # type: ignore[attr-defined]


def hide_addresses(module: ModuleType, _C: Any) -> None:
    # Other libraries would take addresses of the device for those of a GPU: CuPy, Numba, JAX, TVM.
    dlpack: Any = importlib.import_module("torch.utils.dlpack")
    on_the_device = (None, int(dlpack.DLDeviceType.kDLCUDA))

    def __cuda_array_interface__(self: torch.Tensor) -> Any:
        raise AttributeError(
            "openreg: __cuda_array_interface__ requires the memory of a GPU, and CUDA is emulated on the CPU; use "
            "Tensor.cpu()"
        )

    def refusing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def to_dlpack(tensor: torch.Tensor, *, dl_device: Any = None, **kwargs: Any) -> Any:
            if tensor.is_cuda and (dl_device and int(dl_device[0])) in on_the_device:  # a copy for the host has its own
                raise BufferError(
                    "openreg: DLPack cannot export CUDA tensors: the importing library would use a GPU, and CUDA is "
                    "emulated on the CPU; use Tensor.cpu()"
                )
            return original(tensor, dl_device=dl_device, **kwargs)

        return to_dlpack

    every: Any = torch
    every.Tensor.__cuda_array_interface__ = property(__cuda_array_interface__)
    every._C._to_dlpack_versioned = refusing(every._C._to_dlpack_versioned)
    every._C._to_dlpack = dlpack.to_dlpack = every.to_dlpack = refusing(every._C._to_dlpack)
    # Programs in C take the tables of functions from the classes.
    exchange = _C.exchange_without_addresses(every._C._dlpack_exchange_api())
    every._C._dlpack_exchange_api = lambda: exchange
    every.Tensor.__dlpack_c_exchange_api__ = exchange
    if hasattr(dlpack, "ReadOnlyTensorWrapper"):  # since 2.14
        const_exchange = _C.const_exchange_without_addresses(every._C._const_dlpack_exchange_api())
        every._C._const_dlpack_exchange_api = lambda: const_exchange
        dlpack.ReadOnlyTensorWrapper.__dlpack_c_exchange_api__ = const_exchange


def replace_foreign_kernels(module: ModuleType, _C: Any) -> None:
    # A library that was compiled for CUDA registers kernels that need a GPU. They are replaced when it has been
    # loaded, before Python can call them: by `import`, or by ctypes, which torch.ops.load_library uses.
    _C.libraries_were_loaded()
    _C.replace_foreign_kernels()

    def replace_after(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if _C.libraries_were_loaded() and (names := _C.replace_foreign_kernels()):
                log.info("kernels for CUDA are not used: %s", ", ".join(names))
            return result

        return load

    ExtensionFileLoader.create_module = replace_after(ExtensionFileLoader.create_module)  # type: ignore[method-assign]
    ctypes.CDLL.__init__ = replace_after(ctypes.CDLL.__init__)  # type: ignore[method-assign]


def refuse_kernel_sources(module: ModuleType, _C: Any) -> None:
    # torch.cuda._compile_kernel would look for NVIDIA's compiler.
    cuda: Any = torch.cuda
    cuda._compile_kernel = _unsupported.refusal("torch.cuda._compile_kernel", _unsupported.SOURCES)


def script_originals(module: ModuleType, _C: Any) -> None:
    # TorchScript compiles the source of context managers. The device's are not written for it, PyTorch's are.
    script: Any = importlib.import_module("torch.jit._script")
    internal: Any = importlib.import_module("torch._jit_internal")
    compile_class = script._recursive_compile_class
    classes = {getattr(module, name): originals[name] for name in ("StreamContext", "device")}

    def _recursive_compile_class(obj: Any, loc: Any) -> Any:
        if obj not in classes:
            return compile_class(obj, loc)
        resolve = internal.createResolutionCallbackForClassMethods(classes[obj])
        return script._compile_and_register_class(classes[obj], resolve, internal._qualified_name(obj))

    script._recursive_compile_class = _recursive_compile_class
    module.stream.__prepare_scriptable__ = lambda: originals["stream"]


def make_events(module: ModuleType, _C: Any) -> None:
    # The base class of torch.cuda.Event is one of a build with CUDA.
    _events.provide(module, _C)


def report_no_cudnn(module: ModuleType, _C: Any) -> None:
    # Recurrent networks ask at each call, and are warned of a build without cuDNN.
    cudnn: Any = torch.backends.cudnn
    original = cudnn.is_acceptable
    cudnn.is_acceptable = lambda tensor: not tensor.is_cuda and original(tensor)


def generate_cpp(utils: ModuleType) -> None:
    # Inductor's kernels are C++. It must not take the device for a GPU, on which they would be Triton's.
    if "cuda" in utils.GPU_TYPES:
        utils.GPU_TYPES.remove("cuda")


def choose_cpp(config: ModuleType) -> None:
    # What ir.is_triton() asks for "cuda", whatever the scheduler of the device is.
    config.cuda_backend = "cpp"  # type: ignore[attr-defined]


def schedule_cpp(scheduler: ModuleType) -> None:
    # Without Triton, Inductor refuses "cuda" by its capability, whatever the scheduler of the device is.
    original = scheduler.Scheduler.create_backend

    @functools.wraps(original)
    def create_backend(self: Any, device: torch.device) -> Any:
        if device.type != "cuda":
            return original(self, device)
        scheduler.V.graph.add_device_info(device)
        return scheduler.get_scheduling_for_device("cuda")(self)

    scheduler.Scheduler.create_backend = create_backend


def capture_cpp(scheduler: ModuleType) -> None:
    # Inductor captures parts of a program in graphs: those that are on a GPU, which is what it takes for Triton.
    ir = importlib.import_module("torch._inductor.ir")
    asks = contextvars.ContextVar("asks", default=False)
    should_partition, is_gpu = scheduler.Scheduler.should_partition, scheduler.BaseSchedulerNode.is_gpu

    @functools.wraps(should_partition)
    def ask(self: Any, node: Any) -> Any:
        if isinstance(node.node, ir.MultiOutput) and isinstance(node.node.inputs[0], ir.WhileLoop):
            return "results of a loop are a list, which a graph cannot take as inputs"
        token = asks.set(True)
        try:
            return should_partition(self, node)
        finally:
            asks.reset(token)

    @functools.wraps(is_gpu)
    def answer(self: Any) -> bool:
        device = self.get_device()
        return is_gpu(self) or (asks.get() and device is not None and device.type == "cuda")

    scheduler.Scheduler.should_partition = ask
    scheduler.BaseSchedulerNode.is_gpu = answer


def capture_no_branches(lowering: ModuleType) -> None:
    # Inductor captures no program with a branch, which trees do not support. It looks whether Triton would compute it.
    cond = torch.ops.higher_order.cond
    original = lowering.lowerings[cond]

    @functools.wraps(original)
    def lower(*args: Any, **kwargs: Any) -> Any:
        lowering.V.graph.disable_cudagraphs_reason = "control flow operator: torch.cond."
        return original(*args, **kwargs)

    lowering.lowerings[cond] = lower


def capture_unguarded(trees: ModuleType) -> None:
    # A tree of graphs returns its pool to earlier states. Guards around blocks (DEBUG_MEMORY) are no part of these.
    _C = importlib.import_module(".device._C", __package__)
    original = trees.cudagraphify_impl

    @functools.wraps(original)
    def cudagraphify_impl(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not _C.debugs_memory():
            return original(model, *args, **kwargs)
        warnings.warn(
            "openreg: Inductor does not capture graphs with TORCH_OPENREG_DEBUG_MEMORY=1; compiled programs run as in "
            "the default mode",
            stacklevel=2,
        )
        return model

    trees.cudagraphify_impl = cudagraphify_impl  # type: ignore[attr-defined]


def register_nccl(c10d: ModuleType) -> None:
    # occl serves "nccl", and "gloo" for tensors of the device: PyTorch's Gloo would get a null pointer from a registry
    # that only a build with CUDA fills.
    _C = importlib.import_module(".device._C", __package__)
    names = {
        "ProcessGroupNCCL": _process_group.make_class(c10d, _C),
        "_DEFAULT_PG_NCCL_TIMEOUT": _process_group.TIMEOUT,
        "_hash_tensors": _process_group.hash_tensors,
        "_register_external_nccl_comm": _unsupported.refusal("_register_external_nccl_comm", _unsupported.NVLINK),
        "_unregister_external_nccl_comm": _unsupported.refusal("_unregister_external_nccl_comm", _unsupported.NVLINK),
        "_nvshmemx_cumodule_init": _unsupported.refusal("_nvshmemx_cumodule_init", _unsupported.NVLINK),
    }
    for each in (c10d, sys.modules["torch.distributed"], sys.modules["torch._C._distributed_c10d"]):
        for name, value in names.items():
            setattr(each, name, value)
    c10d._NCCL_AVAILABLE = True  # type: ignore[attr-defined]
    c10d.default_pg_nccl_timeout = _process_group.TIMEOUT  # type: ignore[attr-defined]
    original = c10d.BackendConfig.__init__

    @functools.wraps(original)
    def __init__(self: Any, backend: Any) -> None:
        original(self, backend)
        self.device_backend_map = {
            device: "occl" if name == "nccl" or (name == "gloo" and device == "cuda") else name
            for device, name in self.device_backend_map.items()
        }

    c10d.BackendConfig.__init__ = __init__


def share_tensors(reductions: ModuleType) -> None:
    # Tensors of CUDA are sent by handles of CUDA. Those of the device are sent as those of any other: by their storage.
    original: Callable[[torch.Tensor], Any] = reductions.reduce_tensor

    @functools.wraps(original)
    def reduce_tensor(tensor: torch.Tensor) -> Any:
        if tensor.device.type != "cuda" or tensor.is_nested or tensor.layout != torch.strided:
            return original(tensor)
        if tensor.requires_grad and not tensor.is_leaf:
            return original(tensor)  # which raises
        metadata = (tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.requires_grad)
        return reductions.rebuild_tensor, (type(tensor), tensor._typed_storage(), metadata)

    reductions.reduce_tensor = reduce_tensor  # type: ignore[attr-defined]
    kinds: list[Any] = [torch.Tensor, torch.nn.Parameter, *torch._tensor_classes]
    for kind in kinds:
        ForkingPickler.register(kind, reduce_tensor)


def refuse_triton(driver: ModuleType) -> None:
    # Triton would look for NVIDIA's driver, and its error would ask for a GPU. Its interpreter needs no driver.
    def _create_driver() -> Any:
        raise RuntimeError(
            "openreg: Triton compiles kernels for a GPU, and this device is emulated on the CPU; to run them in its "
            "interpreter, set TRITON_INTERPRET=1 before the program starts"
        )

    driver._create_driver = _create_driver  # type: ignore[attr-defined]


def refuse_extensions(cpp_extension: ModuleType) -> None:
    # It would call NVIDIA's compiler, or search the capabilities of this build of PyTorch, which has none.
    _extensions.refuse(cpp_extension)
