"""Callbacks for the import of a module of PyTorch; they cost nothing in programs that never import it."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: _Callback | str) -> None:
    """Calls `callback` with the module `name`: now if it is already imported, otherwise after its import.

    An exception of the callback makes that import fail. A callback of this package may be given by its name,
    "module:function": then its module is imported when it is called.
    """
    if isinstance(callback, str):
        callback = functools.partial(_call, callback)
    if name in sys.modules:
        callback(sys.modules[name])
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(callback)


def _call(callback: str, module: ModuleType) -> None:
    of, function = callback.split(":")
    getattr(importlib.import_module(f".{of}", __package__), function)(module)


class _Finder(MetaPathFinder):
    """Delegates to the other finders, and makes the loader that they return call the callbacks."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[_Callback]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self.waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):  # before Python 3.12 a finder needs no find_spec
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._extend(spec)
                return spec
        return None

    def _extend(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # removes the instance's attribute, so the class's applies again
            execute(module)
            for callback in self.waiting.pop(spec.name, ()):
                callback(module)

        # On the instance, which belongs to this module only: other code sees the original loader.
        loader.exec_module = exec_module  # type: ignore[method-assign]


_finder = _Finder()
