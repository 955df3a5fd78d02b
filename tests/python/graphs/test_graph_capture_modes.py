"""Which calls a capture permits, to whom and in which mode: the rules of CUDA's cudaStreamCaptureMode.

Calls that ask for the status of captured work, or of a device with a captured stream, are never permitted. Other waits
and queries, and allocations that the caches do not serve, are "potentially unsafe": the mode decides whose spoil the
capture. The table agrees with what was observed on an H200 with torch 2.11, but for the calls of another device.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

openreg = torch.openreg
MODES = ("global", "thread_local", "relaxed")
NOT_PERMITTED = "operation not permitted"


class Scene:
    """A capture of `captured` under way; everything else is as it was before."""

    def __init__(self) -> None:
        self.captured, self.side, self.other = openreg.Stream(), openreg.Stream(), openreg.Stream()
        self.elsewhere = openreg.Stream(1)
        self.kept = [torch.ones(9, device="openreg:1")]  # in segments from which small blocks are served
        for stream in (self.other, self.elsewhere):
            with stream:
                self.kept.append(torch.ones(9, device=stream.device))
        self.x = torch.arange(4.0, device="openreg")
        self.unused = torch.ones(9, device="openreg")
        self.pinned = torch.zeros(4).pin_memory()
        self.event, self.timed = torch.Event("openreg"), openreg.Event(enable_timing=True)
        self.captured_event = torch.Event("openreg")
        self.event_elsewhere = torch.Event("openreg:1")
        self.event.record(self.other)
        self.timed.record(self.other)
        self.event_elsewhere.record(self.elsewhere)
        self.graph = openreg.CUDAGraph()
        with self.side, openreg.graph(self.graph, stream=self.side):
            self.y = self.x + 1
        openreg.synchronize()
        openreg.synchronize(1)

    def on_other(self, work: Callable[[], Any]) -> Any:
        with self.other:
            return work()

    def on_captured(self, work: Callable[[], Any]) -> Any:
        with self.captured:
            return work()

    def capture_another(self) -> None:
        """Without `graph`, which waits for the device first."""
        another = openreg.CUDAGraph()
        with self.other:
            another.capture_begin(capture_error_mode="relaxed")
            y = self.x + 1
            another.capture_end()
        del y


Call = Callable[[Scene], Any]

# Never permitted: what is asked for includes captured work.
NEVER: dict[str, Call] = {
    "synchronize, the captured stream": lambda scene: scene.captured.synchronize(),
    "query, the captured stream": lambda scene: scene.captured.query(),
    "synchronize, a captured event": lambda scene: scene.captured_event.synchronize(),
    "query, a captured event": lambda scene: scene.captured_event.query(),
    "synchronize, its device": lambda scene: openreg.synchronize(0),
    "accelerator.synchronize": lambda scene: torch.accelerator.synchronize(0),
}
# Potentially unsafe: the mode decides.
UNSAFE: dict[str, Call] = {
    "synchronize, another stream": lambda scene: scene.other.synchronize(),
    "query, another stream": lambda scene: scene.other.query(),
    "synchronize, the default stream": lambda scene: openreg.default_stream(0).synchronize(),
    "synchronize, an event": lambda scene: scene.event.synchronize(),
    "query, an event": lambda scene: scene.event.query(),
    "item": lambda scene: scene.on_other(lambda: scene.x.sum().item()),
    "cpu": lambda scene: scene.on_other(lambda: scene.x.cpu()),
    "nonzero": lambda scene: scene.on_other(lambda: scene.x.nonzero()),
    "synchronize, another device": lambda scene: openreg.synchronize(1),
    "synchronize, a stream of another device": lambda scene: scene.elsewhere.synchronize(),
    "query, an event of another device": lambda scene: scene.event_elsewhere.query(),
    "copy of a few elements from pageable memory": lambda scene: scene.on_other(lambda: scene.x.copy_(torch.ones(4))),
    "tensor": lambda scene: scene.on_other(lambda: torch.tensor([1.0], device="openreg")),
    "allocate what the cache has not": lambda scene: scene.on_other(lambda: torch.empty(1 << 26, device="openreg")),
    "pin what the cache has not": lambda scene: scene.on_other(lambda: torch.ones(1 << 25).pin_memory()),
}
# Always permitted: nothing is asked for, and no memory of the system.
SAFE: dict[str, Call] = {
    "launch": lambda scene: scene.on_other(lambda: scene.x + 1),
    "launch, another device": lambda scene: torch.ones(3, device="openreg:1") + 1,
    "copy to pinned memory": lambda scene: scene.on_other(lambda: scene.pinned.copy_(scene.x, non_blocking=True)),
    "pin, on the captured stream": lambda scene: scene.on_captured(lambda: torch.ones(1 << 25).pin_memory()),
    "allocate, on the captured stream": lambda scene: scene.on_captured(lambda: torch.empty(1 << 26, device="openreg")),
    "record": lambda scene: scene.event.record(scene.other),
    "wait_event": lambda scene: scene.other.wait_event(scene.event),
    "wait_stream": lambda scene: scene.other.wait_stream(scene.side),
    "allocate": lambda scene: scene.on_other(lambda: torch.empty(4, device="openreg")),
    "free": lambda scene: scene.on_other(lambda: delattr(scene, "unused")),
    "replay": lambda scene: scene.on_other(scene.graph.replay),
    "capture": lambda scene: scene.capture_another(),
    "memory_stats": lambda scene: openreg.memory_stats(),
    "mem_get_info": lambda scene: openreg.mem_get_info(),
    "query, an event that was never recorded": lambda scene: torch.Event("openreg").query(),
    "stream": lambda scene: openreg.Stream(),
    "is_current_stream_capturing": lambda scene: openreg.is_current_stream_capturing(),
}


def is_permitted(name: str, mode: str, another_thread: bool) -> bool:
    if name in UNSAFE:
        return mode == "relaxed" or (mode == "thread_local" and another_thread)
    return name in SAFE


def error_of(work: Callable[[], Any]) -> str | None:
    try:
        work()
    except RuntimeError as error:
        return str(error)
    return None


def in_thread(work: Callable[[], str | None]) -> str | None:
    seen: list[str | None] = []
    thread = threading.Thread(target=lambda: seen.append(work()))
    thread.start()
    thread.join()
    (error,) = seen
    return error


@pytest.mark.parametrize("another_thread", [False, True], ids=["own thread", "another thread"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*NEVER, *UNSAFE, *SAFE])
def test_a_call_during_a_capture_is_permitted_as_cuda_has_it(name, mode, another_thread):
    scene, graph = Scene(), openreg.CUDAGraph()
    call = (NEVER | UNSAFE | SAFE)[name]
    permitted = is_permitted(name, mode, another_thread)

    def ask() -> str | None:
        return error_of(lambda: call(scene))

    error: str | None = None

    def capture() -> None:
        nonlocal error
        with openreg.graph(graph, stream=scene.captured, capture_error_mode=mode):
            y = scene.x + 1
            scene.captured_event.record()
            error = in_thread(ask) if another_thread else ask()
            y.add_(1)

    failed = error_of(capture)
    if permitted:
        assert error is None and failed is None
    else:
        assert error is not None and NOT_PERMITTED in error
        assert failed is not None and ("previous error during capture" in failed or NOT_PERMITTED in failed)
    # The streams are usable in any case.
    with scene.captured:
        assert (torch.arange(3, device="openreg") + 1).tolist() == [1, 2, 3]
    openreg.synchronize()
