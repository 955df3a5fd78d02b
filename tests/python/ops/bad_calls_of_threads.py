"""Threads that make bad calls, beside threads that make good ones and shall see nothing of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import torch
from as_cpu import sentence

BOOLS, COMPLEXES = torch.ones(2, 2, dtype=torch.bool), torch.ones(2, 2, dtype=torch.complex64)

# What to call, and its tensors.
BAD: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "mm": (torch.mm, (BOOLS, BOOLS)),
    "argmax": (torch.argmax, (COMPLEXES,)),
    "lgamma": (torch.lgamma, (COMPLEXES,)),
    "renorm": (lambda x: torch.renorm(x, 2, 5, 1.0), (torch.ones(2, 3),)),
    "remainder": (lambda x: x % 0, (torch.arange(6),)),
    "add": (torch.add, (torch.ones(2, 3), torch.ones(4))),
}


class BadCall:
    """A call that raises, with its tensors on a device."""

    def __init__(self, name: str, device: str) -> None:
        self.function, tensors = BAD[name]
        self.tensors = [tensor.to(device) for tensor in tensors]

    def error(self) -> Exception | None:
        try:
            self.function(*self.tensors)
        except Exception as error:
            return error
        return None


def item(x: torch.Tensor) -> bool:
    return x[1].item() == 2.0


def synchronize(x: torch.Tensor) -> bool:
    torch.accelerator.synchronize()
    return True


def synchronize_stream(x: torch.Tensor) -> bool:
    torch.openreg.current_stream().synchronize()
    return True


def arithmetic(x: torch.Tensor) -> bool:
    return (x * 2 + 1).sum().item() == 15.0


def copy(x: torch.Tensor) -> bool:
    return x.cpu().tolist() == [1.0, 2.0, 3.0]


INNOCENT = {f.__name__: f for f in (item, synchronize, synchronize_stream, arithmetic, copy)}


@contextmanager
def switching_often() -> Iterator[None]:
    """Python gives another thread a turn a hundred times as often as usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 100)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def errors_gone_astray(bad: list[str], innocent: list[str], calls: int, streams_apart: bool) -> list[str]:
    """One thread for each name in `bad`, which makes as many calls, and one for each in `innocent`, until those are
    done. What is not as it should be: bad calls that do not raise what the CPU does, and errors and wrong values in
    innocent threads."""
    torch.accelerator.synchronize()
    start = threading.Barrier(len(bad) + len(innocent))
    all_done = threading.Event()

    def begin() -> None:
        if streams_apart:
            torch.openreg.set_stream(torch.openreg.Stream())
        start.wait()

    def call_badly(name: str) -> list[str]:
        expected = BadCall(name, "cpu").error()
        assert expected is not None
        call = BadCall(name, "openreg")
        torch.openreg.current_stream().synchronize()  # after `begin`, it may be another stream
        astray = []
        begin()
        for number in range(calls):
            got = call.error()
            if type(got) is not type(expected) or sentence(got) != sentence(expected):
                astray.append(f"call {number} of {name}: {got!r}; the CPU raises {expected!r}")
        return astray

    def work(name: str) -> list[str]:
        x = torch.tensor([1.0, 2.0, 3.0]).to("openreg")
        torch.openreg.current_stream().synchronize()
        astray = []
        begin()
        while not all_done.is_set():
            try:
                if not INNOCENT[name](x):
                    astray.append(f"{name}: wrong values")
            except Exception as error:
                astray.append(f"{name}: {error!r}")
        return astray

    with switching_often(), ThreadPoolExecutor(len(bad) + len(innocent)) as pool:
        guilty = [pool.submit(call_badly, name) for name in bad]
        others = [pool.submit(work, name) for name in innocent]
        wait(guilty)
        all_done.set()
        return [text for thread in (*guilty, *others) for text in thread.result()]


def assert_errors_stay(bad: list[str], innocent: list[str], calls: int, streams_apart: bool) -> None:
    astray = errors_gone_astray(bad, innocent, calls, streams_apart)
    assert not astray, "\n".join([f"{len(astray)} went astray:", *astray[:5], "...", *astray[-5:]])
    torch.accelerator.synchronize()
