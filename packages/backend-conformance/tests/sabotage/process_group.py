"""Process groups for the generated project, which has none: setups of the kit. They compute on the host, by Gloo."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class Waiting(dist._Work):  # type: ignore[misc]
    """Work that is waited for, as it should be."""

    def __init__(self, tensors: list[torch.Tensor], function: Callable[[], None]) -> None:
        super().__init__()
        self._thread = threading.Thread(target=function)
        self._thread.start()
        self._tensors = tensors

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._thread.join()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        self.wait()
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._tensors)
        return future


class Early(Waiting):
    """Work that counts as complete at once."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        return True


class Group(dist.ProcessGroup):  # type: ignore[misc]
    def __init__(self, work: type[Waiting], store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._work, self._gloo = work, dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:
        return "host"

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> dist._Work:
        host = tensors[0].cpu()

        def add() -> None:
            self._gloo.allreduce([host], opts).wait()
            tensors[0].copy_(host)

        return self._work(tensors, add)

    def barrier(self, opts: Any) -> dist._Work:
        return self._work([], lambda: self._gloo.barrier().wait())


def _load(work: type[Waiting]) -> None:
    import torch_acme  # noqa: F401 - what it registers

    def create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Group:
        return Group(work, store, rank, size, timeout)

    dist.Backend.register_backend("host", create, devices=["acme"])


def waits() -> None:
    _load(Waiting)


def returns_early() -> None:
    _load(Early)
