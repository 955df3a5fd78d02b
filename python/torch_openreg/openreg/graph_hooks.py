"""Functions that are called when graphs are captured, instantiated, replayed and destroyed.

The names are those of `torch.cuda.graphs` in torch 2.15; here they do not depend on the version of torch. The hooks of
one graph are registered by methods of `torch.openreg.CUDAGraph`; their exceptions are raised. The functions of this
module register hooks for all graphs; those run first, and their exceptions are ignored, so that an observer cannot
break a program. All return a handle whose ``remove()`` removes the hook.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.hooks import RemovableHandle

from .. import _C

if TYPE_CHECKING:
    from .graph_capture import CUDAGraph

Hook = Callable[["CUDAGraph"], None]


class Hooks(OrderedDict[int, Callable[..., None]]):
    """Functions in the order of their registration. Handles refer to it weakly, which they cannot do with a dict."""

    def add(self, function: Callable[..., None]) -> RemovableHandle:
        if not callable(function):
            raise TypeError(f"openreg: the hook is not callable (got {function!r}, expected a function)")
        handle = RemovableHandle(self)
        self[handle.id] = function
        return handle

    def call(self, *args: Any) -> None:
        for function in list(self.values()):
            function(*args)

    def call_all(self, *args: Any) -> None:
        """Ignores exceptions."""
        for function in list(self.values()):
            with contextlib.suppress(Exception):
                function(*args)


_MOMENTS = ("capture_start", "capture_end", "instantiate", "replay_start", "replay_end")
_of_all_graphs = {moment: Hooks() for moment in _MOMENTS}
_destroyed = Hooks()


def register_graph_capture_start_hook(fn: Hook) -> RemovableHandle:
    """Calls ``fn(graph)`` when the capture of any graph has begun. Work that it launches is captured."""
    return _of_all_graphs["capture_start"].add(fn)


def register_graph_capture_end_hook(fn: Hook) -> RemovableHandle:
    """Calls ``fn(graph)`` when the capture of any graph has ended successfully."""
    return _of_all_graphs["capture_end"].add(fn)


def register_graph_instantiate_hook(fn: Hook) -> RemovableHandle:
    """Calls ``fn(graph)`` whenever any graph has been made ready to run."""
    return _of_all_graphs["instantiate"].add(fn)


def register_graph_replay_start_hook(fn: Hook) -> RemovableHandle:
    """Calls ``fn(graph)`` before each replay of any graph is queued."""
    return _of_all_graphs["replay_start"].add(fn)


def register_graph_replay_end_hook(fn: Hook) -> RemovableHandle:
    """Calls ``fn(graph)`` when a replay of any graph has been queued, or queueing it has failed; it has not run yet."""
    return _of_all_graphs["replay_end"].add(fn)


def register_graph_destroy_hook(fn: Callable[[set[int]], None]) -> RemovableHandle:
    """Calls ``fn(ids)`` when any graph is reset or destroyed. Exceptions of `fn` are ignored.

    `ids` is empty: only CUDA's tools number graphs.
    """
    return _destroyed.add(fn)


def export_dot(path: str | os.PathLike[str], *, verbose: bool = True) -> Hook:
    """A hook that writes the graph to `path` in DOT, for `CUDAGraph.register_capture_end_hook`.

    Args:
        path: the file.
        verbose: accepted for compatibility; the file is the same.

    Raises:
        TypeError: `path` is not a path.
    """
    path = os.fsdecode(path)

    def write(cuda_graph: CUDAGraph) -> None:
        cuda_graph.enable_debug_mode()
        cuda_graph.debug_dump(path, verbose=verbose)

    return write


class _Retained:
    """What a graph keeps until it is reset or destroyed. It does not refer to the graph."""

    def __init__(self) -> None:
        self.callbacks = Hooks()
        self.objects: OrderedDict[int, object] = OrderedDict()
        self.synchronizes = False
        self.streams: set[torch.Stream] = set()  # of replays, if they have to complete before the release

    def release(self) -> None:
        """Releases everything, then raises the error of a replay that it waited for, if there is one."""
        failure: RuntimeError | None = None
        for stream in () if _C.in_bad_fork() else self.streams:
            try:
                stream.synchronize()
            except RuntimeError as error:
                failure = failure or error
        self.streams.clear()
        _destroyed.call_all(set())
        self.callbacks.call_all()
        self.callbacks.clear()
        self.objects.clear()
        if failure is not None:
            raise failure


class GraphHooks:
    """The hooks of one graph, as in `torch.cuda.CUDAGraph` of torch 2.15. Hooks run in the order of registration."""

    def __init__(self) -> None:
        self._hooks: defaultdict[str, Hooks] = defaultdict(Hooks)
        self._arm()
        _alive.add(self)

    def _arm(self) -> None:
        self._retained = _Retained()
        self._release = weakref.finalize(self, self._retained.release)

    def _call_hooks(self, moment: str) -> None:
        if of_all := _of_all_graphs[moment]:
            of_all.call_all(self)
        if own := self._hooks.get(moment):
            own.call(self)

    @contextlib.contextmanager
    def _replay_hooks(self) -> Iterator[None]:
        self._call_hooks("replay_start")
        try:
            yield
        finally:
            self._call_hooks("replay_end")

    def _has_replay_hooks(self) -> bool:
        return any(_of_all_graphs[moment] or self._hooks.get(moment) for moment in ("replay_start", "replay_end"))

    def _release_retained(self) -> None:
        try:
            self._release()
        finally:
            self._arm()

    def _note_replay(self, device: int) -> None:
        if self._retained.synchronizes:
            self._retained.streams.add(torch.accelerator.current_stream(device))

    def register_capture_start_hook(self, hook: Hook) -> RemovableHandle:
        """Calls ``hook(graph)`` when the capture has begun. Work that it launches is captured."""
        return self._hooks["capture_start"].add(hook)

    def register_capture_end_hook(self, hook: Hook) -> RemovableHandle:
        """Calls ``hook(graph)`` when the capture has ended successfully."""
        return self._hooks["capture_end"].add(hook)

    def register_post_instantiate_hook(self, hook: Hook) -> RemovableHandle:
        """Calls ``hook(graph)`` whenever the graph has been made ready to run."""
        return self._hooks["instantiate"].add(hook)

    def register_replay_start_hook(self, hook: Hook) -> RemovableHandle:
        """Calls ``hook(graph)`` before each replay is queued. If it raises, nothing is queued."""
        return self._hooks["replay_start"].add(hook)

    def register_replay_end_hook(self, hook: Hook) -> RemovableHandle:
        """Calls ``hook(graph)`` when a replay has been queued, or queueing it has failed; it has not run yet."""
        return self._hooks["replay_end"].add(hook)

    def register_destroy_callback(
        self, cb: Callable[[], None], *, synchronize_before_release: bool = False
    ) -> RemovableHandle:
        """Calls ``cb()`` once, when the graph is reset or destroyed; its exceptions are ignored.

        Args:
            cb: must not refer to the graph, which it would keep alive.
            synchronize_before_release: whether replays that are queued after this call complete first, so that `cb` may
                free what they use.
        """
        self._retained.synchronizes |= synchronize_before_release
        return self._retained.callbacks.add(cb)

    def retain_object(self, obj: object, *, synchronize_before_release: bool = False) -> RemovableHandle:
        """Keeps a reference to `obj` until the graph is reset or destroyed.

        Args:
            obj: must not refer to the graph, which it would keep alive.
            synchronize_before_release: whether replays that are queued after this call complete first.
        """
        self._retained.synchronizes |= synchronize_before_release
        handle = RemovableHandle(self._retained.objects)
        self._retained.objects[handle.id] = obj
        return handle


_alive: weakref.WeakSet[GraphHooks] = weakref.WeakSet()


@atexit.register
def _release_all() -> None:
    """Runs before the device is shut down, so that callbacks may use it; finalizers would run too late."""
    for graph in list(_alive):
        try:
            graph._release()
        except RuntimeError:
            sys.excepthook(*sys.exc_info())
