"""Events between processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from child_processes import run_python

WAITING = """
import time, torch, torch.multiprocessing as mp

def child(handles, shared, back):
    event = torch.cuda.Event.from_ipc_handle(torch.device("cuda:0"), handles.get())
    x = shared.get()
    torch.cuda.current_stream().wait_event(event)
    back.put((event.query(), x.sum().item()))
    x.fill_(5)
    event.record()
    back.put("recorded")
    handles.get()

if __name__ == "__main__":
    context = mp.get_context("spawn")
    handles, shared, back = context.Queue(), context.Queue(), context.Queue()
    process = context.Process(target=child, args=(handles, shared, back))
    process.start()
    event = torch.cuda.Event(interprocess=True)
    x = torch.zeros(4, device="cuda")
    shared.put(x)
    time.sleep(0.5)
    torch.cuda._sleep(2_000_000_000)
    x.fill_(2)
    event.record()
    assert not event.query()
    handles.put(event.ipc_handle())
    assert back.get() == (True, 8)
    assert back.get() == "recorded"
    event.synchronize()
    assert event.query() and x.tolist() == [5] * 4
    handles.put(None)
    process.join()
    print("done")
"""


def test_a_process_waits_for_the_work_of_another(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WAITING)
    result = run_python(program)
    assert result.stdout == "done\n", result.stderr


def test_an_event_is_made_from_its_handle() -> None:
    event = torch.cuda.Event(interprocess=True)
    assert isinstance(event, torch.cuda.Event) and len(event.ipc_handle()) == 64
    same = torch.cuda.Event.from_ipc_handle(0, event.ipc_handle())
    assert same.query()
    torch.cuda._sleep(2_000_000_000)
    event.record()
    assert not event.query() and not same.query()
    torch.cuda.current_stream().wait_event(event)
    same.synchronize()
    assert event.query() and same.query()


SENT = """
import torch, torch.multiprocessing as mp

def child(event, back):
    back.put("ready")
    event.synchronize()
    back.put(event.query())

if __name__ == "__main__":
    context = mp.get_context("spawn")
    event, back = torch.cuda.Event(interprocess=True), context.SimpleQueue()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(2_000_000_000)
        event.record()  # the first use of the device: it does not wait
        assert not event.query()
    process = context.Process(target=child, args=(event, back))
    process.start()
    assert back.get() == "ready" and back.get() is True
    process.join()
"""


def test_an_event_is_sent_to_another_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SENT)
    result = run_python(program)
    assert result.returncode == 0, result.stderr
    assert "Exception ignored" not in result.stderr


def test_wrong_handles_and_times_are_refused() -> None:
    event = torch.cuda.Event(interprocess=True)
    handle = event.ipc_handle()
    with pytest.raises(RuntimeError, match="openreg: invalid event handle: "):
        torch.cuda.Event.from_ipc_handle(0, b"x" * 64)
    with pytest.raises(RuntimeError, match="openreg: invalid event handle: "):
        torch.cuda.Event.from_ipc_handle(0, b"x")
    del event
    with pytest.raises(RuntimeError, match="openreg: invalid event handle: "):
        torch.cuda.Event.from_ipc_handle(0, handle)
    with pytest.raises(RuntimeError, match="interprocess events do not support timing"):
        torch.cuda.Event(enable_timing=True, interprocess=True)
    with pytest.raises(RuntimeError, match="interprocess events do not support timing"):
        torch.cuda.Event(interprocess=True).elapsed_time(torch.cuda.Event())
