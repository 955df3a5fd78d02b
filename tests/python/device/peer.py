"""Another process for the tests of shared memory: it calls functions of this file, and remembers tensors by name."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import torch
from devices import DEVICE
from torch import multiprocessing

from torch_openreg import _C

kept: dict[str, Any] = {}


class Peer:
    """A process that `call` reaches; `arguments` are passed to it when it starts, and kept as "0", "1" and so on."""

    def __init__(self, *arguments: Any, method: str = "spawn") -> None:
        context = multiprocessing.get_context(method)
        self._calls, self._results = context.SimpleQueue(), context.SimpleQueue()
        self._process = context.Process(target=_serve, args=(self._calls, self._results, *arguments), daemon=True)
        self._process.start()
        # The child's ends, so that a child that dies ends a `get()` here.
        self._calls._reader.close()
        self._results._writer.close()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.begin(function, *arguments)
        return self.result()

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._calls.put((function, arguments))

    def result(self) -> Any:
        result, error = self._results.get()
        if error is not None:
            raise RuntimeError(error)
        return result

    def end(self) -> int | None:
        """The exit status of the process, which had nothing more to do."""
        self._calls.put(None)
        self._process.join(60)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join(60)


def _serve(calls: Any, results: Any, *arguments: Any) -> None:
    kept.update({str(i): argument for i, argument in enumerate(arguments)})
    while (call := calls.get()) is not None:
        function, arguments = call
        try:
            results.put((function(*arguments), None))
        except Exception as error:
            results.put((None, f"{type(error).__name__}: {error}"))
        del call, function, arguments


def echo(value: Any) -> Any:
    return value


def keep(name: str, value: Any) -> None:
    kept[name] = value


def forget(*names: str) -> None:
    """What is left to do with their memory is done when this returns."""
    for name in names:
        del kept[name]
    torch.openreg.ipc_collect()


def get(name: str) -> Any:
    return kept[name]


def elements(name: str) -> list[Any]:
    return kept[name].cpu().tolist()


def all_are(name: str, value: float) -> bool:
    return bool((kept[name] == value).all())


def fill(name: str, value: float) -> None:
    kept[name].fill_(value)
    torch.accelerator.synchronize()


def same_storage(first: str, second: str) -> bool:
    return kept[first].untyped_storage()._cdata == kept[second].untyped_storage()._cdata


def make(name: str, value: float, count: int) -> None:
    kept[name] = torch.full((count,), value, device=DEVICE)


def message(name: str) -> bytes:
    return bytes(ForkingPickler.dumps(kept[name]))


def figures() -> tuple[int, int, tuple[int, int]]:
    return torch.accelerator.memory_allocated(), torch.accelerator.memory_reserved(), torch.openreg.mem_get_info()


def add_late(name: str) -> None:
    """Queues work that is slow to begin, and frees what it reads."""
    torch.openreg._sleep(100_000_000)
    kept["sum"] = kept.pop(name) + 1


def open_files() -> int:
    """Those that stay open: an engine reads its control group's quota now and then."""

    def stays(descriptor: Path) -> bool:
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            return not str(descriptor.readlink()).startswith(("/proc/", "/sys/"))
        return False

    return sum(map(stays, Path("/proc/self/fd").iterdir()))


def resize(name: str, size: int) -> None:
    kept[name].resize_(size)


def fail_to_send(name: str, times: int) -> str:
    """The last error of messages with a remembered tensor."""
    error = ""
    for _ in range(times):
        try:
            ForkingPickler.dumps((kept[name], _Unpicklable()))
        except TypeError as failure:
            error = str(failure)
    return error


class _Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("cannot be pickled")


def take_race_reports() -> list[str]:
    return _C.take_race_reports()


def sum_on_another_stream(tensor: torch.Tensor) -> float:
    with torch.openreg.stream(torch.Stream()):
        return tensor.sum().item()


def sum_of_kept_on_another_stream(name: str) -> float:
    return sum_on_another_stream(kept[name])


def add_to_kept_and_wait(name: str) -> None:
    kept[name].add_(1)
    torch.accelerator.synchronize()


def write_and_read_on_two_streams(name: str, in_order: bool) -> None:
    side = torch.Stream()
    kept[name].add_(1)
    if in_order:
        side.wait_stream(torch.accelerator.current_stream())
    try:
        with side:
            kept[name] + 1
    finally:
        torch.accelerator.synchronize()
