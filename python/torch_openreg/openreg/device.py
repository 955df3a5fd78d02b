"""Devices: number, current device, properties."""

from __future__ import annotations

import builtins
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType

import torch

from .. import _C, _loading
from .._slot import NAME
from .arguments import CurrentDevice, DeviceLike, check_type, device_index
from .entries import begin_entry, end_entry

__all__ = [
    "can_device_access_peer",
    "current_blas_handle",
    "current_device",
    "current_solver_handle",
    "device",
    "device_count",
    "device_of",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "init",
    "is_available",
    "is_initialized",
    "is_tf32_supported",
    "set_device",
    "synchronize",
]

log = logging.getLogger("torch_openreg")

_at_first_use: list[Callable[[], object]] = [lambda: log.info("%s is in use: %d devices", NAME, _C.device_count())]
_calling = threading.RLock()  # other threads wait until the functions are done, which may use the device
if _loading.has_malformed_setting():
    _C.require_lazy_init(True)
os.register_at_fork(after_in_child=_C.after_fork)


def is_available() -> bool:
    """Whether there is a device to use. Never raises, and does not initialise the device."""
    return _C.device_count() > 0


def device_count() -> int:
    """Number of devices (``TORCH_OPENREG_DEVICES``, 2 if unset).

    Never raises: if a setting is malformed, the number is 0 and a line on stderr says why.
    """
    return _C.device_count()


def is_initialized() -> bool:
    """Whether this process has initialised the device; false in a forked child, which cannot use it."""
    return _C.is_initialized()


def init() -> None:
    """Initialises the device. Without this call, the first use of the device does.

    Raises:
        RuntimeError: in a forked child of a process that has initialised the device, or if a setting is malformed.
    """
    _lazy_init()


def _lazy_init() -> None:
    """Same as `init`. PyTorch calls it before the first tensor of the device, unless the device is in use by then."""
    _loading.check_settings()
    if not _C.computes():
        import torch._meta_registrations  # noqa: F401  (shapes of results that are not computed)

        _C.register_attention()
    _C.init()
    _call_lazy_calls()
    _C.require_lazy_init(False)


def _call_lazy_calls() -> None:
    with _calling:
        while _at_first_use:
            _at_first_use.pop(0)()


def _lazy_call(callable: Callable[[], object]) -> None:
    """Calls `callable` now if the device is initialised, otherwise before its first tensor."""
    if not builtins.callable(callable):
        raise TypeError(f"openreg: this is not callable (got {callable!r}, expected a function without arguments)")
    _at_first_use.append(callable)
    _C.require_lazy_init(True)
    if is_initialized():
        _call_lazy_calls()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had initialised the device, and so cannot use it."""
    return _C.in_bad_fork()


def current_device() -> int:
    """The index of the calling thread's current device.

    Raises:
        RuntimeError: in a forked child of a process that has initialised the device.
    """
    if not torch.compiler.is_compiling() and _C.in_bad_fork():
        _lazy_init()
    return torch.accelerator.current_device_index()


def set_device(device: torch.device | str | int) -> None:
    """Makes `device` the calling thread's current device; a negative index changes nothing.

    Raises:
        ValueError: `device` is not a device, or has no index.
        RuntimeError: there is no such device.
    """
    if not _is_negative(device):
        torch.accelerator.set_device_index(device_index(device, optional=False))


def _is_negative(device: object) -> bool:
    return isinstance(device, int) and device < 0


def _exchange_device(device: int) -> int:
    """Makes the device with this index current; returns the previous index. Negative: returns -1, without a change."""
    check_type("the index of a device", device, int, "an int")
    return -1 if device < 0 else torch._C._accelerator_exchangeDevice(device_index(device))


def _maybe_exchange_device(device: int) -> int:
    """Same as `_exchange_device`. CUDA's skips devices that are not initialised; here initialisation costs nothing."""
    return _exchange_device(device)


class device(CurrentDevice):
    """Context manager: makes `device` current inside, and restores the previous one afterwards.

    Args:
        device: an index, a string such as ``"openreg:1"`` or a torch.device. None, a negative index and a device
            without an index change nothing.
    """

    def __init__(self, device: DeviceLike) -> None:
        self.idx = -1 if device is None or _is_negative(device) else device_index(device)

    def __enter__(self) -> device:
        if self.idx >= 0:
            begin_entry(self, torch._C._accelerator_exchangeDevice(self.idx))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.idx >= 0:
            torch._C._accelerator_maybeExchangeDevice(end_entry(self))


class device_of(device):
    """Context manager: makes the device of a tensor or storage current; other device types change nothing."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage) -> None:
        super().__init__(obj.device if obj.device.type == NAME else None)


def synchronize(device: DeviceLike = None) -> None:
    """Waits until all work of `device` (default: the current one) has completed; the calling thread helps to run it.

    Without an argument, this does nothing before the first use of the device. While a stream of the device is being
    captured, in whatever thread and mode, wait for a stream or an event instead.

    Raises:
        torch.AcceleratorError: a command has failed and its error has not been raised yet. If there are several, the
            oldest is raised, and the next call raises the next. Or a stream of the device is being captured; the
            capture is then lost.
    """
    if torch.compiler.is_compiling():  # Dynamo rejects an explicit None, here and in `current_stream`
        torch.accelerator.synchronize() if device is None else torch.accelerator.synchronize(device)
    elif device is not None or _C.is_initialized() or _C.in_bad_fork():
        _lazy_init()
        torch.accelerator.synchronize(device_index(device, negative_is_current=True))
    # Otherwise there is nothing to wait for. The synchronize at the end of a profile must not initialise the device.


def get_device_properties(device: DeviceLike = None) -> _C._OpenregDeviceProperties:
    """The properties of `device` (default: the current one).

    Of the device: ``name``, ``total_memory`` in bytes, and ``uuid``, whose text is ``str(uuid)`` and whose 16 numbers
    are ``uuid.bytes``. Of the machine, which all devices share: ``multi_processor_count`` (its cores) and ``engines``
    (the threads that run commands). Of the GPU whose layout of random numbers the device has: ``major``, ``minor``,
    ``warp_size``, ``max_threads_per_multi_processor``, ``regs_per_multiprocessor`` and others that programs use.
    Two calls for the same device return equal objects.

    Raises:
        AssertionError: there is no such device.
    """
    _lazy_init()
    return _C.device_properties(device_index(device, missing=AssertionError))


def get_device_name(device: DeviceLike = None) -> str:
    """The name of `device` (default: the current one): ``"openreg"``.

    Raises:
        AssertionError: there is no such device.
    """
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike = None) -> tuple[int, int]:
    """The compute capability that programs written for CUDA query: (9, 0).

    `torch.accelerator.get_device_capability` says which dtypes the device supports.

    Raises:
        AssertionError: there is no such device.
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """Architectures that kernels were compiled for: none, because all run on the machine's processor."""
    return []


def get_gencode_flags() -> str:
    """The flags for `get_arch_list`: empty."""
    return ""


def is_tf32_supported() -> bool:
    """Whether float32 products may be computed in TF32: always False, because the processor has no such format."""
    return False


def current_blas_handle() -> int:
    """0, the null handle: the device's products are not computed by a library with handles. Initialises the device."""
    _lazy_init()
    return 0


def current_solver_handle() -> int:
    """0, as `current_blas_handle`."""
    _lazy_init()
    return 0


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether work of `device` can use the memory of `peer_device` without a copy through the host.

    True for any two devices, because they share the machine's memory; False for a device and itself, as with CUDA.

    Args:
        device: default the current device.
        peer_device: an index, or a device with an index.

    Raises:
        AssertionError: there is no such device.
    """
    _lazy_init()
    index = device_index(device, missing=AssertionError)
    return index != device_index(peer_device, optional=False, missing=AssertionError)
