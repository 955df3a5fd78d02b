"""``torch.distributed.ProcessGroupNCCL``, which a build without NCCL lacks: the device's process group by that name."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

import torch

from . import _collectives, _unsupported

TIMEOUT = datetime.timedelta(minutes=10)
_CONFIG = {
    "blocking": 1,
    "cga_cluster_size": 4,
    "min_ctas": 1,
    "max_ctas": 32,
    "net_name": "",
    "comm_name": "",
    "split_share": 0,
    "traffic_class": 0,
    "cta_policy": 0,
    "collnet_enable": 0,
    "shrink_share": 0,
    "nvls_ctas": 0,
}


def make_class(c10d: ModuleType, _C: Any) -> type:
    """The class. Called once, with torch.distributed.distributed_c10d, after whose import the device's class exists."""
    group_class = _C.process_group_class()
    _add_methods(group_class)
    distributed = importlib.import_module(".device._pytorch.distributed", __package__)

    class Options(_C.ProcessGroupOcclOptions):  # type: ignore[misc]
        """Accepts all options of NCCL; only the timeout has an effect."""

        def __init__(self, is_high_priority_stream: bool = False) -> None:
            super().__init__(TIMEOUT)
            self.is_high_priority_stream = is_high_priority_stream
            self.config = SimpleNamespace(**_CONFIG)
            self.split_from: Any = None
            self.split_color = 0

        def __deepcopy__(self, memo: dict[int, Any]) -> Options:
            copy = Options(self.is_high_priority_stream)
            copy.config = SimpleNamespace(**vars(self.config))
            copy.split_color = self.split_color
            for name in ("split_from", "_timeout", "group_name", "global_ranks_in_group"):
                setattr(copy, name, getattr(self, name))
            return copy

    class OfGroups(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, group_class)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, group_class)

        def __call__(cls, store: Any, rank: int, size: int, options: Any = None) -> Any:
            given = options if options is not None else Options()
            made = c10d._DistributedBackendOptions()
            made.store, made.group_rank, made.group_size = store, rank, size
            made.timeout, made.group_id = given._timeout, given.group_name
            made.global_ranks_in_group = given.global_ranks_in_group or list(range(size))
            return distributed._create(made, given)

        def __getattr__(cls, name: str) -> Any:
            return getattr(group_class, name)

    # Not by a statement: its attributes are those of the device's class.
    return OfGroups("ProcessGroupNCCL", (), {"Options": Options, "__module__": c10d.__name__, "__doc__": __doc__})


def _add_methods(group: Any) -> None:
    numbers: dict[str, int] = {}
    version = (_collectives.VERSION >> 32, (_collectives.VERSION >> 16) & 0xFFFF, _collectives.VERSION & 0xFFFF)

    def uid(self: Any) -> int:
        return numbers.setdefault(self.options.group_name, len(numbers))

    def extend_timeout(self: Any, timeout: datetime.timedelta) -> None:
        # NCCL's ends with the next collective. A longer one breaks no program.
        self.set_timeout(self.options._timeout + timeout)

    def check_pool(self: Any, pool: Any) -> None:
        if not isinstance(pool, torch.cuda.MemPool):
            raise TypeError(f"openreg: the pool has the wrong type (got {pool!r}, expected a torch.cuda.MemPool)")

    members: dict[str, Any] = {
        "uid": property(uid),
        "name": lambda self: "nccl",
        "get_error": lambda self: torch._C._distributed_c10d.ErrorType.SUCCESS,
        "_set_default_timeout": group.set_timeout,
        "_add_ephemeral_timeout": extend_timeout,
        "_is_initialized": lambda self: True,
        # There are no communicators: a group is ready when it exists, and groups are aborted in any order.
        "eager_connect_single_device": lambda self, device=None: None,
        "perform_nocolor_split": lambda self, device: None,
        "comm_split_count": lambda self: 0,
        "_group_start": lambda self: None,
        "_group_end": lambda self: None,
        # Each collective takes memory of any pool.
        "register_mem_pool": check_pool,
        "deregister_mem_pool": check_pool,
        "get_build_nccl_version": staticmethod(lambda: version),
        "get_runtime_nccl_version": staticmethod(lambda: version),
        "NCCL_CTA_POLICY_DEFAULT": 0,
        "NCCL_CTA_POLICY_EFFICIENCY": 1,
        "NCCL_CTA_POLICY_ZERO": 2,
        "_start_time_estimate": _refusal("_start_time_estimate", "NCCL's time cannot be estimated"),
        "_end_time_estimate": _refusal("_end_time_estimate", "NCCL's time cannot be estimated"),
        "_comm_ptr": _refusal("_comm_ptr", "there is no NCCL communicator"),
    }
    for name, member in members.items():
        setattr(group, name, member)


def _refusal(name: str, reason: str) -> Callable[..., NoReturn]:
    return _unsupported.refusal(f"ProcessGroupNCCL.{name}", reason, needs="NCCL")


def hash_tensors(tensors: list[torch.Tensor]) -> int:
    """``torch._C._distributed_c10d._hash_tensors``, for debug messages of the level DETAIL."""
    return sum(int(torch.hash_tensor(tensor.detach())) for tensor in tensors)
