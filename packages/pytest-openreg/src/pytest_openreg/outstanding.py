"""What a phase of a test leaves unfinished on the device: captures, queued work, and errors that no call has raised.

Nothing here waits without a limit, or imports torch before the tests do.
"""

from __future__ import annotations

import functools
import sys
from _thread import allocate_lock, start_new_thread  # not threading.Thread, which a test may replace
from types import ModuleType, SimpleNamespace
from typing import Any

ERRORS = 1000  # collected of each device in one phase; a device has no more than one for each of its streams


class _Wait:
    """A wait for a device in a thread of its own, which continues even when nobody waits for it any longer."""

    def __init__(self, module: Any, index: int) -> None:
        self._module, self._index = module, index
        self.error: BaseException | None = None
        self._under_way = allocate_lock()
        self._under_way.acquire()
        start_new_thread(self._run, ())

    def _run(self) -> None:
        try:
            self._module.synchronize(self._index)
        except BaseException as error:
            self.error = error
        finally:
            self._under_way.release()

    def ends_within(self, seconds: float) -> bool:
        ended = self._under_way.acquire(timeout=seconds)
        if ended:
            self._under_way.release()
        return ended


_waits: dict[int, _Wait] = {}  # those that have not been seen to end, by device


def last_capture() -> int:
    """The number of the latest capture; 0 if there is none."""
    if used_module() is None:
        return 0
    from torch_openreg import _C

    return _C.last_capture()


def end_captures(after: int = 0) -> list[str]:
    """Ends the captures under way that began after this one, of all threads, and describes them."""
    if used_module() is None:
        return []
    from torch_openreg import _C

    return _C.abandon_captures(after) if _C.is_capturing() else []


def is_busy() -> bool:
    """Whether a device still has not completed the work that an earlier phase waited for in vain."""
    return any(not wait.ends_within(0) for wait in _waits.values())


def uncollected_errors(seconds: float) -> list[str]:
    """Waits for all devices; returns, and thereby clears, the errors that have not been raised yet.

    Waits at most `seconds` for each device, and not at all for one that an earlier call waited for in vain: that is an
    error, too. During a capture nothing can be waited for, so the errors are left to a later call.
    """
    module = used_module()
    if module is None:
        return []
    import torch

    from torch_openreg import _C

    errors: list[str] = []
    for index in range(module.device_count()):
        if index not in _waits and not _C.is_healthy(index):
            errors += _C.reset_device(index, True)  # what a test has raised is no news
        for _ in range(ERRORS):
            if _C.is_capturing():
                return errors
            if index in _waits:
                seconds_left = 0.0
            else:
                _waits[index], seconds_left = _Wait(module, index), seconds
            if not _waits[index].ends_within(seconds_left):
                errors.append(
                    f"openreg:{index} has not completed its work within {seconds:g} s (openreg_timeout in "
                    "pytest's configuration); tests that use the device fail until it has"
                )
                break
            error = _waits.pop(index).error
            if error is None:
                break
            errors.append(str(error))
            if not isinstance(error, torch.AcceleratorError):
                break
    return errors


def own_module() -> Any:
    """The functions of torch.openreg as they were when the plugin first saw them, whatever a test puts in their place.

    None if nothing has imported torch, or there is no device.
    """
    module = getattr(sys.modules.get("torch"), "openreg", None)
    return _functions(module) if isinstance(module, ModuleType) else None


@functools.cache
def _functions(module: ModuleType) -> SimpleNamespace:
    return SimpleNamespace(**vars(module))


def used_module() -> Any:
    """`own_module()` if this process has used the device and can still, else None."""
    module = own_module()
    return module if module is not None and module.is_initialized() else None
