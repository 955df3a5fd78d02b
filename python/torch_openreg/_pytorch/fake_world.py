"""Lets torch.distributed make groups of which one rank exists. What takes the place of Gloo is in cpp/distributed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

from .. import _C

VARIABLE = "TORCH_OPENREG_FAKE_WORLD"
_C10D = "torch.distributed.distributed_c10d"
_MOST_RANKS = 1 << 16


@dataclasses.dataclass(frozen=True)
class World:
    """The number of ranks, and the one that this process is."""

    size: int
    rank: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= _MOST_RANKS:
            raise ValueError(f"openreg: a fake world has 1 to {_MOST_RANKS} ranks (got {self.size})")
        if not 0 <= self.rank < self.size:
            raise ValueError(
                f"openreg: the rank is not in the fake world (got {self.rank}, expected 0 to {self.size - 1})"
            )

    def environment(self) -> dict[str, str]:
        """What torchrun would set, on machines with as many ranks as there are devices here."""
        local = max(min(_C.device_count(), self.size), 1)
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.rank % local),
            "LOCAL_WORLD_SIZE": str(local),
            "GROUP_RANK": str(self.rank // local),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
        }


_current: World | None = None


def current() -> World | None:
    """The fake world that the process is in."""
    return _current


def enter_from_environment() -> None:
    """Called when the device is loaded. Malformed variables must not break ``import torch``: see `check`."""
    global _current
    try:
        _current = _from_environment()
    except ValueError:
        return
    if _current is not None:
        for name, value in _current.environment().items():
            os.environ.setdefault(name, value)


def _from_environment() -> World | None:
    if VARIABLE not in os.environ:
        return None
    size, rank = _number(VARIABLE), _number("RANK", "0")
    if _number("WORLD_SIZE", str(size)) != size:
        raise ValueError(
            f"openreg: {VARIABLE} is {size}, but WORLD_SIZE is {os.environ['WORLD_SIZE']}: a fake world has one "
            "process; start it without a launcher, or unset one of the two"
        )
    return World(size, rank)


def _number(variable: str, otherwise: str = "") -> int:
    value = os.environ.get(variable, otherwise)
    if not value.isdecimal():
        raise ValueError(f"openreg: {variable} is malformed (got {value!r}, expected an integer)")
    return int(value)


@contextlib.contextmanager
def entered(world: World) -> Iterator[None]:
    """The process is in `world`; at the end, groups are destroyed."""
    if not _entered.acquire(blocking=False):
        raise RuntimeError("openreg: a fake world is active already: a process is in one at a time")
    try:
        with _replacing_current(world):
            yield
    finally:
        _entered.release()


_entered = threading.Lock()


@contextlib.contextmanager
def _replacing_current(world: World) -> Iterator[None]:
    global _current
    c10d = importlib.import_module(_C10D)
    if c10d.is_initialized():
        raise RuntimeError("openreg: a fake world must begin before init_process_group() is called")
    adapt(c10d)
    before, variables = _current, world.environment()
    saved = {name: os.environ.get(name) for name in variables}
    _current = world
    os.environ.update(variables)
    try:
        yield
    finally:
        if c10d.is_initialized():
            c10d.destroy_process_group()
        _current = before
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def adapt(c10d: ModuleType) -> None:
    """Called with torch.distributed.distributed_c10d once a fake world is wanted. Outside of one nothing changes."""
    if isinstance(c10d.ProcessGroupGloo, _Gloo):
        return
    _put(c10d, "ProcessGroupGloo", _gloo_class(c10d.ProcessGroupGloo))
    for replacement in (rendezvous, _store_based_barrier, broadcast_object_list, scatter_object_list, recv_object_list):
        _put(c10d, replacement.__name__, _replaced(getattr(c10d, replacement.__name__), replacement))


def adapt_if_entered(c10d: ModuleType) -> None:
    """Called with torch.distributed.distributed_c10d after its import."""
    if VARIABLE in os.environ:
        adapt(c10d)


def _put(c10d: ModuleType, name: str, value: Any) -> None:
    """Also where the name has been imported to."""
    original = getattr(c10d, name)
    for module in (c10d, sys.modules.get("torch.distributed"), sys.modules["torch._C._distributed_c10d"]):
        if getattr(module, name, None) is original:
            setattr(module, name, value)


def _replaced(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if _current is None and VARIABLE not in os.environ:
            return original(*args, **kwargs)
        return replacement(original, *args, **kwargs)

    return function


def rendezvous(_: Any, url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[tuple[Any, int, int]]:
    """In place of the function that finds the store and the other ranks."""
    try:
        world = _current or _from_environment()
    except ValueError as error:
        raise RuntimeError(str(error)) from None
    assert world is not None
    yield _C.make_fake_store(), world.rank if rank < 0 else rank, world.size if world_size < 0 else world_size


def _store_based_barrier(_: Any, *args: Any, **kwargs: Any) -> None:
    """Nobody is waited for."""


def broadcast_object_list(original: Any, object_list: list[Any], *args: Any, **kwargs: Any) -> None:
    """Of another rank's objects, this one has its own in their place."""
    if _is_source(*args, **kwargs):
        original(object_list, *args, **kwargs)


def scatter_object_list(
    original: Any,
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """If another rank scatters, the object is the one that this rank would scatter, or None."""
    if _is_source(src, group, group_src=group_src):
        original(scatter_object_output_list, scatter_object_input_list, src, group, group_src)
    else:
        own = scatter_object_input_list
        scatter_object_output_list[0] = own[torch.distributed.get_rank(group)] if own else None


def recv_object_list(_: Any, *args: Any, **kwargs: Any) -> None:
    """Raises: there is no object of the rank's own."""
    world = current()
    raise RuntimeError(
        f"openreg: rank {world.rank if world else 0} cannot receive an object, because only this rank of the fake "
        "world exists"
    )


def _is_source(
    src: int | None = None, group: Any = None, device: Any = None, group_src: int | None = None, **_: Any
) -> bool:
    source = group_src
    if source is None:
        whole: Any = group or torch.distributed.group.WORLD
        source = torch.distributed.get_group_rank(whole, src or 0)
    return source == torch.distributed.get_rank(group)


class _Gloo(type):
    """The class of what torch.distributed calls to make a Gloo group."""

    original: type

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made: Any = cls.original if _current is None else _C.fake_gloo_class()
        return made(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        fake: Any = _C.fake_gloo_class()
        return isinstance(instance, (cls.original, fake))

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.original, name)


def _gloo_class(original: type) -> type:
    return _Gloo("ProcessGroupGloo", (), {"original": original, "__module__": original.__module__})


_forward_shapes: dict[str, Any] = {}  # by the name of the group: what this rank's stages sent last


def adapt_stages(stage: ModuleType) -> None:
    """Called with torch.distributed.pipelining.stage, whose stages tell each other the shapes of what they send."""
    pipeline_stage = stage.PipelineStage
    if not hasattr(pipeline_stage, "_warmup_forward_vote"):
        return
    vote, result_of_vote = pipeline_stage._warmup_forward_vote, pipeline_stage._warmup_backward_result
    send, receive = pipeline_stage._send_meta, pipeline_stage._recv_meta

    @functools.wraps(vote)
    def _warmup_forward_vote(self: Any, has_backward: bool, received_acc: Any = None) -> Any:
        if _current is None:
            return vote(self, has_backward, received_acc)
        dynamic = stage.InferenceMode.needs_dynamic(self._user_meta, has_backward)
        own = torch.tensor([0 if dynamic else 1], dtype=torch.int32, device=self.device)
        if self.is_first:
            return own
        if not self._is_same_rank(self.stage_index - 1):
            received_acc = torch.ones(1, dtype=torch.int32, device=self.device)  # of ranks like this one
        return received_acc * own

    @functools.wraps(result_of_vote)
    def _warmup_backward_result(self: Any, received_result: Any = None) -> Any:
        if _current is None or self.is_last or self._is_same_rank(self.stage_index + 1):
            return result_of_vote(self, received_result)
        return torch.zeros(1, dtype=torch.int32, device=self.device).copy_(received_result)

    @functools.wraps(send)
    def _send_meta(self: Any, meta: Any, dst_stage: int) -> None:
        if _current is None:
            send(self, meta, dst_stage)
        elif not isinstance(meta, stage._StageBackwardMeta):
            _forward_shapes[self.group.group_name] = meta

    @functools.wraps(receive)
    def _recv_meta(self: Any, src_stage: int) -> Any:
        if _current is None:
            return receive(self, src_stage)
        if src_stage > self.stage_index:  # gradients have the shapes of what the stage has sent
            return stage._StageBackwardMeta(backward_metas=stage._derive_grad_metas(self._stage_meta.outputs))
        known = _forward_shapes.get(self.group.group_name)
        if known is None:
            raise RuntimeError(
                f"openreg: stage {self.stage_index} of a pipeline needs input_args and output_args, because only rank "
                f"{_current.rank} of the fake world exists: no rank sends the shapes of stage {src_stage}"
            )
        return known

    for function in (_warmup_forward_vote, _warmup_backward_result, _send_meta, _recv_meta):
        setattr(pipeline_stage, function.__name__, function)
