"""Callbacks that run after the import of a module; without that import they cost nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_Callback = Callable[[ModuleType], None]


def when_imported(name: str, callback: _Callback) -> None:
    """Calls `callback` with the module: now if it is already imported, otherwise right after its import."""
    if name in sys.modules:
        callback(sys.modules[name])
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, callback))


class _Finder(MetaPathFinder):
    """Finds one module through the other finders, until it is imported."""

    def __init__(self, name: str, callback: _Callback) -> None:
        self.name, self.callback = name, callback

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        finders = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        specs = (finder.find_spec(name, path, target) for finder in finders)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._extend(spec.loader)
        return spec

    def _extend(self, loader: Loader) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # of the instance, so that the class's applies again
            execute(module)
            sys.meta_path.remove(self)
            self.callback(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
