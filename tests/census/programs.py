"""Short programs for failing_programs.py. Each function makes what its program needs once, and returns the program."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from outcome import DEVICE, device_module

SECONDS = 30  # another process that gives no answer for so long hangs

Run = Callable[[], Any]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(DEVICE)


def batch() -> torch.Tensor:
    return torch.linspace(-1, 1, 32).reshape(4, 8).to(DEVICE)


def train(net: nn.Module, steps: int = 2) -> list[torch.Tensor]:
    """The parameters after some steps."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(batch()).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return list(net.parameters())


def training() -> Run:
    return lambda: train(model())


def streams() -> Run:
    """Two streams, an event, pinned memory, a copy to the host."""

    def run() -> Any:
        side = torch.Stream(DEVICE)
        x = batch()
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            y = (x @ x.T).relu()
            done = side.record_event()
        y.record_stream(torch.accelerator.current_stream())
        done.wait()
        host = torch.empty(4, 4, pin_memory=True)
        host.copy_(y + 1, non_blocking=True)
        torch.accelerator.synchronize()
        return host.clone()

    return run


def graph() -> Run:
    """Capture, instantiation, two replays."""

    def run() -> Any:
        x = batch()
        captured = device_module().CUDAGraph()
        with device_module().graph(captured):
            y = (x @ x.T).softmax(-1)
            z = y.cumsum(0) + y.sort().values
        captured.replay()
        x.mul_(2)
        captured.replay()
        return z.clone()

    return run


def graphed_callable() -> Run:
    def run() -> Any:
        x = batch().requires_grad_()
        net = device_module().make_graphed_callables(model(), (x,))
        net(batch().requires_grad_()).square().sum().backward()
        return [parameter.grad.clone() for parameter in net.parameters()]

    return run


def compiled() -> Run:
    """Inductor's programs, forward and backward. They are compiled once, without faults."""
    net = model()
    fast = torch.compile(net)
    fast(batch()).square().mean().backward()

    def run() -> Any:
        net.zero_grad()
        fast(batch()).square().mean().backward()
        gradients = [parameter.grad for parameter in net.parameters()]
        net.zero_grad()
        return gradients

    return run


def compiling() -> Run:
    """The compilation itself is disturbed too."""

    def run() -> Any:
        torch._dynamo.reset()
        net = torch.compile(lambda x: (x.sin() @ x.T).softmax(-1))
        x = batch().requires_grad_()
        net(x).square().mean().backward()
        return x.grad

    return run


@dataclass
class Injected:
    """A fault, or what another process says of one."""

    spec: str
    fired: int = 0
    counted: int = 0
    where: list[str] = field(default_factory=list)


class Peer:
    """Another process: it answers messages with what `function` returns. The caller must not have used the device."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        if os.fork() == 0:
            self.pipe.close()
            with contextlib.suppress(EOFError, BrokenPipeError):
                while True:
                    serve(theirs, function)
            os._exit(0)
        theirs.close()

    def ask(self, message: Any) -> Any:
        self.pipe.send(message)
        return self.answer()

    def answer(self) -> Any:
        """Raises what the function raises there, and TimeoutError if the process hangs."""
        if not self.pipe.poll(SECONDS):
            raise TimeoutError(f"the other process has given no answer in {SECONDS} s")
        result, error = self.pipe.recv()
        if error is not None:
            raise {"OutOfMemoryError": torch.OutOfMemoryError}.get(error[0], RuntimeError)(error[1])
        return result

    @contextlib.contextmanager
    def inject(self, spec: str) -> Iterator[Injected]:
        """A fault there."""
        fault = Injected(spec)
        self.ask(fault)
        try:
            yield fault
        finally:
            ended = self.ask(None)
            fault.fired, fault.counted, fault.where = ended.fired, ended.counted, ended.where


faults = contextlib.ExitStack()  # that are injected in a peer
injected: list[Any] = []


def serve(pipe: Any, function: Callable[[Any], Any]) -> None:
    """Answers a message."""
    try:
        message = pipe.recv()
        if isinstance(message, Injected):
            injected.append(faults.enter_context(device_module().faults.inject(message.spec)))
            pipe.send((None, None))
        elif message is None:
            fault = injected.pop()
            faults.close()
            pipe.send((Injected(fault.spec, fault.fired, fault.counted, fault.where), None))
        else:
            pipe.send((function(message), None))
    except EOFError:
        raise
    except Exception as error:
        answer = (None, (type(error).__name__, str(error)))
        with contextlib.suppress(Exception):
            torch.accelerator.synchronize()
        pipe.send(answer)


def send_back(x: torch.Tensor) -> torch.Tensor:
    result = x @ x.T + 1
    torch.accelerator.synchronize()
    return result


def sent() -> Run:
    """A tensor is sent to another process, and one comes back."""
    peer = Peer(send_back)
    return lambda: peer.ask(batch() * 2).clone()


def received() -> Run:
    """The same, with the faults in the other process."""
    peer = Peer(send_back)

    def run() -> Any:
        return peer.ask(batch() * 2).clone()

    run.inject = peer.inject  # type: ignore[attr-defined]
    return run


def ranks(work: Callable[[], Any]) -> Run:
    """Two ranks that make a process group, do their work, and leave the group. This one is rank 0."""
    folder = tempfile.TemporaryDirectory()

    def run_rank(rank: int, group: int) -> Any:
        store = dist.FileStore(f"{folder.name}/{group}", 2)
        timeout = timedelta(seconds=SECONDS / 6)
        dist.init_process_group(rank=rank, world_size=2, store=store, timeout=timeout)
        try:
            dist.barrier()  # connects them, so that each learns at once when the other one leaves
            result = work()
            torch.accelerator.synchronize()
            return result
        finally:
            dist.destroy_process_group()

    def other_rank(group: int) -> int:
        """The memory that it keeps."""
        with contextlib.suppress(Exception):  # the other one has failed
            run_rank(1, group)
        with contextlib.suppress(Exception):
            torch.accelerator.synchronize()
        gc.collect()
        return int(device_module().memory_allocated())

    peer = Peer(other_rank)
    groups = 0
    kept: list[int] = []

    def run() -> Any:
        nonlocal groups
        groups += 1
        peer.pipe.send(groups)
        try:
            return run_rank(0, groups)
        finally:
            kept.append(peer.answer())
            assert kept[-1] <= kept[0], f"the other rank keeps {kept[-1] - kept[0]} bytes"

    return run


def reduce_and_gather() -> Any:
    x = batch()
    dist.all_reduce(x)
    parts = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(parts, x * (1 + dist.get_rank()))
    return torch.cat(parts) @ x.T


def train_ddp() -> Any:
    return train(DistributedDataParallel(model()), steps=1)


PROGRAMS: dict[str, Callable[[], Run]] = {
    "training": training,
    "streams": streams,
    "graph": graph,
    "graphed callable": graphed_callable,
    "compiled": compiled,
    "compiling": compiling,
    "sent": sent,
    "received": received,
    "collectives": partial(ranks, reduce_and_gather),
    "DDP": partial(ranks, train_ddp),
}
