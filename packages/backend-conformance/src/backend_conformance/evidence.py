"""Evidence for checks of order: a result shows an order only if the host was ahead of the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from backend_conformance import Device, vacuous, wrong

_SECONDS = 5.0  # for several trials that count


class Trials:
    """Repeats an experiment on a stream that is busy; each iteration is a trial, and its value a new number.

    A trial calls `ahead()` at the moment when the order matters: the trial counts if the stream has unfinished work
    then. If no trial counts, the device completed all work before each call returned, so a stub would pass as well:
    vacuous. One that counts is enough if trials take long: beside other programs the same work may take ten times as
    long as it was measured to take.
    """

    def __init__(self, device: Device, stream: torch.Stream, wanted: int = 3, limit: int = 8) -> None:
        self._device, self._stream, self._wanted, self._limit = device, stream, wanted, limit
        self.shown = 0

    def __iter__(self) -> Iterator[int]:
        end = time.monotonic() + _SECONDS
        for number in range(1, self._limit + 1):
            for _ in range(2 ** min(number - 1 - self.shown, 4)):  # more after each trial that did not count
                self._device.enough_work(self._stream)
            yield number
            if self.shown >= self._wanted or (self.shown and time.monotonic() > end):
                return
        if not self.shown:
            vacuous("in no trial did the stream still have unfinished work when the order was checked")

    def ahead(self, stream: torch.Stream | None = None) -> None:
        """States that the order matters now."""
        if not (stream or self._stream).query():
            self.shown += 1


def late_writes(device: Device, stream: torch.Stream, target: torch.Tensor, wanted: int = 3) -> Iterator[int]:
    """Trials in which the stream has yet to write the number, which the trial gets, to all elements of a tensor."""
    trials = Trials(device, stream, wanted)
    for number in trials:
        with stream:
            target.fill_(number)
        trials.ahead()
        yield number


_SIZE = 1 << 14


def buffers(device: Device, count: int, where: torch.device | None = None) -> list[torch.Tensor]:
    """Tensors of zeros for several streams; the kernels that the checks use on them have run once."""
    tensors = [torch.zeros(_SIZE, device=where or device.this) for _ in range(count)]
    for tensor in tensors:  # the first use of a kernel may wait
        tensor.fill_(0).add_(0)
    tensors[0].copy_(tensors[-1])
    torch.accelerator.synchronize(tensors[0].device)
    return tensors


def in_threads(*calls: Callable[[], object]) -> None:
    """Makes the calls at the same time, each in a thread, and raises the first one's error."""
    with ThreadPoolExecutor(len(calls)) as threads:
        for each in [threads.submit(call) for call in calls]:
            each.result()


def has_numpy() -> bool:
    """Whether tensors can be converted to arrays of NumPy. PyTorch does not need it, nor does this package."""
    try:
        torch.ones(1).numpy()
    except RuntimeError:
        return False
    return True


def refused(action: Callable[[], object], what: str, *kinds: type[Exception]) -> Exception:
    """Returns the error of a call that has to raise one of these kinds (RuntimeError if none); wrong if it returns."""
    expected = kinds or (RuntimeError,)
    try:
        action()
    except expected as error:
        return error
    wrong(f"no error: {what}")


def expect_error(call: Any, kind: type[Exception] | tuple[type[Exception], ...], words: str = "") -> str:
    """The message of the error that `call` raises; it must have this type and contain one of the words ("a|b")."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    message = str(refused(call, f"expected {' or '.join(each.__name__ for each in kinds)}", *kinds))
    lower = message.lower()
    assert not words or any(word in lower for word in words.split("|")), f"the message lacks {words!r}: {message}"
    return message


def value(tensor: torch.Tensor) -> float:
    """The single value that all elements have; NaN if they differ."""
    host = tensor.detach().cpu().double().reshape(-1)
    return float(host[0]) if bool((host == host[0]).all()) else float("nan")


def value_on(stream: torch.Stream, tensor: torch.Tensor, copy: torch.Tensor) -> float:
    """The value of a tensor as work of a stream reads it, which copies it to another tensor first."""
    with stream:
        copy.copy_(tensor)
    stream.synchronize()
    return value(copy)
