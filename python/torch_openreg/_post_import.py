"""Code that runs when a module of PyTorch is imported, and costs nothing in programs that never import it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: _Callback) -> None:
    """Calls `callback` with the module `name`: at once if it is imported already, else when it has been.

    Whoever imports the module gets what the callback raises, and not the module.
    """
    if name in sys.modules:
        callback(sys.modules[name])
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(callback)


class _Finder(MetaPathFinder):
    """Finds nothing itself: it lets the others find, and makes the loader that they give call the callbacks."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[_Callback]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self.waiting:
            return None
        for finder in sys.meta_path:
            if finder is self:
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
            del loader.exec_module  # the instance's attribute: the class's comes back
            execute(module)
            for callback in self.waiting.pop(spec.name, ()):
                callback(module)

        # On the instance, which belongs to this one module: everybody else sees the loader that there would be anyway.
        loader.exec_module = exec_module  # type: ignore[method-assign]


_finder = _Finder()
