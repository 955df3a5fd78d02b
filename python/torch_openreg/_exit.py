"""The end of Python: functions at exit may use the device, whenever they were registered."""

from __future__ import annotations

import atexit
import threading

from . import _C, _leaks


class _AfterTheLast:
    """Python releases the arguments of its functions at exit when it has called all of them.

    So this comes after functions that were registered before `import torch`, and before the interpreter ends, when a
    thread that needs it must not run any more.
    """

    def __del__(self) -> None:
        if threading.main_thread().is_alive():  # a program can call the functions itself, or drop them
            return
        _leaks.forget_what_python_holds()
        _C.end_of_python()


def follow_functions_at_exit() -> None:
    """Called once, when the device is loaded."""
    atexit.register(_hold, _AfterTheLast())


def _hold(_: _AfterTheLast) -> None:
    pass
