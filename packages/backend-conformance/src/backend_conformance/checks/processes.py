"""Processes: fork, spawn, and tensors that pass between processes.

Importing torch, and with it the backend, must leave a process forkable: data loaders fork. A child that is forked
after the first use has the parent's memory and none of its threads; it may refuse to work, but must not hang. Spawned
children start anew.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import torch
import torch.multiprocessing

from backend_conformance import Device, Level, check, wrong

FORKED = """
import os, signal
def forked(function):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        status = 9
        try:
            status = function()
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            status = 7
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]
"""

CHILD_COMPUTES = """
def child():
    x = torch.arange(4.0, device=device.this, requires_grad=True)
    (x * x).sum().backward()
    return 0 if x.grad.tolist() == [0, 2, 4, 6] else 3
status = forked(child)
assert status == 0, f"the child ended with {status}"
assert (torch.ones(2, device=device.this) + 1).tolist() == [2, 2]
"""


def run(device: Device, source: str, forked: bool = True) -> str:
    """Runs a program that must end with status 0; returns what it printed."""
    ended = device.run((FORKED if forked else "") + source)
    last = " ".join((ended.stdout + ended.stderr).strip().splitlines()[-3:])
    assert ended.returncode == 0, f"the process ended with {ended.returncode}: {last[-400:]}"
    return ended.stdout


@check(level=Level.TRAINS, hook="what the import starts; _is_in_bad_fork", timeout=120.0)
def child_forked_before_the_first_use_computes(device: Device) -> None:
    """A child that is forked after `import torch`, before the device is used, can use it; so can the parent.

    The runtime must start at the first tensor, in the process that makes it.
    """
    run(device, CHILD_COMPUTES)


@check(level=Level.COMPLETE, hook="isAvailable and deviceCount must not start the device", timeout=120.0)
def child_forked_after_questions_computes(device: Device) -> None:
    """Querying the device's name, count and availability is not a use: a child forked afterwards can use it.

    Libraries ask when they are imported, before a data loader forks. CUDA fails here, unless it asks NVML.
    """
    questions = ("is_available", "device_count", "current_accelerator")
    run(device, "".join(f"torch.accelerator.{each}()\n" for each in questions) + CHILD_COMPUTES)


@check(level=Level.TRAINS, hook="_is_in_bad_fork; the runtime after a fork", timeout=120.0)
def child_forked_after_the_first_use_does_not_hang(device: Device) -> None:
    """A child that is forked after the device was used raises RuntimeError at its first use, or works.

    It must not wait for threads that exist in the parent only, nor crash. CUDA raises "Cannot re-initialize".
    """
    run(
        device,
        """
x = torch.ones(64, 64, device=device.this, requires_grad=True)
(x @ x).sum().backward()
x.grad.sum().item()  # waits, also on a device without synchronize
def child():
    try:
        y = torch.full((3,), 2.0, device=device.this) + 1
        return 0 if y.tolist() == [3, 3, 3] else 3
    except RuntimeError:
        return 0
status = forked(child)
assert status == 0, f"the child ended with wait status {status} (14: it hung; below 128: a signal)"
assert float((x @ x).sum().cpu()) == 64**3
""",
    )


@check(level=Level.TRAINS, hook="the deleter of memory; _is_in_bad_fork", timeout=120.0)
def forked_child_may_free_inherited_tensors(device: Device) -> None:
    """A child that inherited tensors frees them without effect on the parent, and works with tensors of the CPU.

    Workers of a data loader do this: their copy of the parent's tensors dies in them.
    """
    run(
        device,
        """
import gc
kept = [torch.full((1000,), float(n), device=device.this) for n in range(8)]
kept[-1].sum().item()  # waits, also on a device without synchronize
def child():
    kept.clear()
    gc.collect()
    return 0 if torch.ones(3).sum().item() == 3 else 3
status = forked(child)
assert status == 0, f"the child ended with wait status {status}"
more = [torch.full((1000,), -1.0, device=device.this) for n in range(8)]
assert [float(each.amax().cpu()) for each in kept] == list(range(8)), "the child freed the parent's memory"
""",
    )


@check(level=Level.TRAINS, hook="the end of the process", timeout=120.0)
def process_ends_with_unfinished_work(device: Device) -> None:
    """A process that ends, or fails, while the device works ends with its own status.

    Destructors of static objects run after Python has ended; threads of the backend may still use them.
    """
    source = "x = torch.full((400, 400), 1 / 400, device=device.this)\nfor _ in range(30):\n    x = x @ x\n"
    run(device, source, forked=False)
    ended = device.run(source + "raise SystemExit(5)")
    assert ended.returncode == 5, f"the process ended with {ended.returncode}, not 5: {ended.stderr[-300:]}"


def compute(device: Device, number: int, results: Any) -> None:
    """In a spawned child."""
    device.load()
    with torch.accelerator.device_index(number % device.count):
        x = torch.full((100,), float(number), device=device.name, requires_grad=True)
        for _ in range(10):
            (x * x).sum().backward()
        assert x.grad is not None
        results.put((number, x.grad.cpu().tolist()[::33]))


@check(level=Level.TRAINS, hook="the runtime in several processes", timeout=120.0)
def spawned_processes_compute(device: Device) -> None:
    """Two spawned children compute beside the parent, which has used the device already.

    Each has a runtime of its own.
    """
    torch.ones(3, device=device.this)
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    children = [context.Process(target=compute, args=(device, number, results)) for number in (1, 2)]
    for child in children:
        child.start()
    for child in children:
        child.join(100)
        if child.exitcode != 0:
            child.kill()
            wrong(f"a spawned child ended with {child.exitcode}")
    found = dict(results.get() for _ in children)
    assert found == {1: [20.0] * 4, 2: [40.0] * 4}, f"the children computed {found}"


def receive(device: Device, tensors: list[torch.Tensor], answers: Any, done: Any) -> None:
    """In a spawned child: reads what arrived, and writes into the first tensor."""
    device.load()
    answers.put([(str(each.device), each.tolist(), each.stride()) for each in tensors])
    shared = tensors[0].untyped_storage().data_ptr() == tensors[1].untyped_storage().data_ptr()
    tensors[0].fill_(7)
    torch.accelerator.synchronize(tensors[0].device)
    answers.put(shared)
    done.wait(60)


@check(
    level=Level.COMPLETE, hook="a reducer of multiprocessing.reduction.ForkingPickler", needs=("ipc",), timeout=120.0
)
def tensors_are_sent_to_processes(device: Device) -> None:
    """A tensor sent to a spawned process has the values, device and strides, and shares the memory with the sender.

    PyTorch has reducers for the CPU and CUDA; a backend registers its own. Without it, sending raises, and in a queue
    the error occurs in a thread where nobody sees it.
    """
    base = torch.arange(12.0, device=device.this).view(3, 4)
    tensors = [base, base.t()[1:], torch.tensor([1, 2, 3], device=device.at(device.count - 1))]
    torch.accelerator.synchronize()
    multiprocessing.reduction.ForkingPickler.dumps(tensors[0])  # raises here, if at all
    expected = [(str(each.device), each.tolist(), each.stride()) for each in tensors]
    context = torch.multiprocessing.get_context("spawn")
    answers, done = context.SimpleQueue(), context.Event()
    child = context.Process(target=receive, args=(device, tensors, answers, done))
    child.start()
    try:
        got = answers.get()
        assert got == expected, f"the child received {got}"
        assert answers.get(), "two views of a storage arrived as two storages"
        device.cpu_equal(base, torch.full((3, 4), 7.0))
    finally:
        done.set()
        child.join(60)
    assert child.exitcode == 0, f"the child ended with {child.exitcode}"


def produce(device: Device, results: Any, done: Any) -> None:
    """In a spawned child: makes a tensor that the parent receives."""
    device.load()
    x = torch.arange(5.0, device=device.this) * 3
    torch.accelerator.synchronize()
    results.put(x)
    done.wait(60)


@check(
    level=Level.COMPLETE, hook="a reducer of multiprocessing.reduction.ForkingPickler", needs=("ipc",), timeout=120.0
)
def tensors_are_received_from_processes(device: Device) -> None:
    """A tensor that a spawned process made and put into a queue arrives, and stays valid while the sender lives.

    The sender keeps its memory until the receiver has released it.
    """
    multiprocessing.reduction.ForkingPickler.dumps(torch.ones(1, device=device.this))
    context = torch.multiprocessing.get_context("spawn")
    results, done = context.SimpleQueue(), context.Event()
    child = context.Process(target=produce, args=(device, results, done))
    child.start()
    try:
        x = results.get()
        assert x.device == device.this
        device.cpu_equal(x, torch.arange(5.0) * 3)
        del x
    finally:
        done.set()
        child.join(60)
    assert child.exitcode == 0, f"the child ended with {child.exitcode}"
