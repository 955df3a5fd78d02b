"""A thread that waits for the device leaves the interpreter to others, and lets signal handlers run."""

from __future__ import annotations

import signal
import threading

import pytest
import torch
from devices import DEVICE

pytestmark = pytest.mark.any_device


def launch_long_work() -> torch.Tensor:
    """A result that takes some tenths of a second, on the current stream."""
    x = torch.rand(1000, 1000, device=DEVICE)
    y = x
    for _ in range(5):
        y = (y @ x) / 500
    return y


@pytest.mark.not_at_random("the work may have run before the wait")
@pytest.mark.parametrize(
    "wait",
    [
        lambda y: torch.accelerator.synchronize(),
        lambda y: torch.accelerator.current_stream().synchronize(),
        lambda y: torch.accelerator.current_stream().record_event().synchronize(),
        lambda y: y.cpu(),
        lambda y: y[0, 0].item(),
        lambda y: y[:2].tolist(),
        lambda y: y.numpy(force=True),
        lambda y: y.untyped_storage()[0],
        lambda y: y[:1].clone().untyped_storage().tolist(),
    ],
    ids=[
        "synchronize",
        "stream",
        "event",
        "cpu",
        "item",
        "tolist",
        "numpy",
        "storage index",
        "storage list",
    ],
)
def test_another_thread_runs_meanwhile(wait):
    """With the interpreter's lock held during the wait, the other thread could speak only after it."""
    go, order = threading.Event(), []

    def other():
        go.wait()
        order.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    y = launch_long_work()
    go.set()
    wait(y)
    order.append("waiter")
    thread.join()
    assert order == ["other", "waiter"]


def test_many_threads_wait_at_once():
    y = launch_long_work()
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(y.sum().item())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and len(set(seen)) == 1


@pytest.mark.openreg_only
@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_a_signal_handler_runs_during_a_wait_and_may_use_the_device(run_forked):
    """The timer goes off while the main thread waits; the wait goes on after the handler."""
    result = run_forked(
        "import signal, torch\n"
        "x = torch.rand(1000, 1000, device='openreg')\n"
        "def handler(number, frame):\n"
        "    print(stream.query(), torch.arange(4, device='openreg').sum().item())\n"
        "stream = torch.openreg.Stream()\n"
        "stream.wait_stream(torch.openreg.default_stream())\n"
        "with stream:\n"
        "    y = x\n"
        "    for _ in range(40): y = (y @ x) / 500\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.1)\n"
        "stream.synchronize()\n"
        "print(stream.query())\n"
    )
    assert result.stdout == "False 6\nTrue\n"


def test_an_exception_of_a_signal_handler_ends_the_wait():
    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm

    y = launch_long_work()
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Alarm):
            signal.raise_signal(signal.SIGUSR1)
            torch.accelerator.synchronize()
    finally:
        signal.signal(signal.SIGUSR1, before)
    torch.accelerator.synchronize()
    assert torch.isfinite(y).all()
