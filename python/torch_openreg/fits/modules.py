"""Labels allocations with the module that runs, by hooks of all modules."""

from __future__ import annotations

import re
import threading
import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from .. import _C

OUTSIDE, WORKSPACE, OPTIMIZER, FIRST_MODULE = range(4)
"""The tags of allocations: WORKSPACE is backend::kWorkspaceTag, and a module's is at least FIRST_MODULE."""

# What wrappers add to the names of modules: DDP, torch.compile, FSDP1, checkpointing.
_WRAPPERS = re.compile(r"(?:^|(?<=\.))(?:module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)(?:\.|$)")


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.open: list[tuple[int, int]] = []  # the module's id, and the tag before


class Modules:
    """The modules that run, by tag. Hooks are installed until `remove`."""

    def __init__(self) -> None:
        self.names: list[str] = []  # by tag - FIRST_MODULE
        self.gathers: list[bool] = []  # by tag - FIRST_MODULE: whether it is of parameters that FSDP gathers
        self._tags: dict[tuple[str, bool], int] = {}
        self._names: weakref.WeakKeyDictionary[nn.Module, str] = weakref.WeakKeyDictionary()
        self._roots: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        self._here = _OfThread()
        self._handles = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        )
        self.on_root: list[Any] = []
        """Functions of a module that is called while no other is."""

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def tag(self, name: str, gathers: bool = False) -> int:
        """The tag of a module of this name."""
        tag = self._tags.get((name, gathers))
        if tag is None:
            tag = self._tags[name, gathers] = FIRST_MODULE + len(self.names)
            self.names.append(name)
            self.gathers.append(gathers)
        return tag

    def gathering_tag(self, tag: int) -> int:
        """The tag of parameters that are gathered while `tag` is set."""
        return self.tag(self.names[tag - FIRST_MODULE] if tag >= FIRST_MODULE else "", gathers=True)

    def name(self, module: nn.Module) -> str:
        """As `named_modules` of the outermost module that was called has it, without wrappers."""
        return self._names.get(module, "") or type(module).__name__

    def learn(self, root: nn.Module) -> None:
        """Names the modules of `root` if no module that contains it was named before."""
        if root in self._roots:
            return
        self._roots.add(root)
        if root in self._names:
            return
        for path, module in root.named_modules():
            self._names[module] = _WRAPPERS.sub("", path).rstrip(".") or type(root).__name__

    # Dynamo inlines these hooks, so they have no effect while it traces.
    def _enter(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling():
            return
        here = self._here.open
        if not here:
            self.learn(module)
            for function in self.on_root:
                function(module)
        here.append((id(module), _C.set_allocation_tag(self.tag(self.name(module)))))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling():
            return
        here = self._here.open
        if not any(which == id(module) for which, _ in here):
            return  # it was entered before the hooks were installed
        while here:
            which, before = here.pop()
            _C.set_allocation_tag(before)
            if which == id(module):
                return
