"""PyTorch's tracing of GPUs, through which CUDA's sanitizer learns what a program does."""

from __future__ import annotations

from pathlib import Path

import pytest
from child_processes import run_python

# In a process of its own: tracing cannot be switched off.
TRACED = """
import torch, torch.cuda._gpu_trace as trace
torch._C._activate_gpu_trace()
calls = []
for kind in ("event_creation", "event_deletion", "event_record", "event_wait", "memory_allocation",
             "memory_deallocation", "stream_creation", "device_synchronization", "stream_synchronization",
             "event_synchronization"):
    register = getattr(trace, f"register_callback_for_{kind}")
    register(lambda *numbers, kind=kind: calls.append((kind, *numbers)))

x = torch.empty(4, device="cuda")
address = x.data_ptr()
assert calls == [("memory_allocation", address)], calls
del x
assert calls[1:] == [("memory_deallocation", address)], calls
calls.clear()

side = torch.cuda.Stream()
assert calls == [("stream_creation", side.cuda_stream)], calls
calls.clear()

event = torch.cuda.Event()
assert not calls
event.record(side)
number = event.cuda_event
assert calls == [("event_creation", number), ("event_record", number, side.cuda_stream)], calls
calls.clear()
event.wait()
event.synchronize()
side.synchronize()
torch.cuda.synchronize()
assert calls == [("event_wait", number, 0), ("event_synchronization", number),
                 ("stream_synchronization", side.cuda_stream), ("device_synchronization",)], calls
calls.clear()
with torch.cuda.stream(side):
    torch.ones(2, device="cuda").nonzero()
    torch.ones(2, device="cuda").sum().item()
    torch.ones(2, device="cuda").cpu()
waits = [call for call in calls if not call[0].startswith("memory_")]
assert waits == 3 * [("stream_synchronization", side.cuda_stream)], waits
calls.clear()
del event
assert calls == [("event_deletion", number)], calls
print("done")
"""

ORDERED = """
import torch
x = torch.ones(1 << 16, device="cuda")
side = torch.cuda.Stream()
if {ordered}:
    side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    x.add_(1)
torch.cuda.synchronize()
print("done")
"""


def test_calls_are_traced() -> None:
    result = run_python("-c", TRACED)
    assert result.stdout == "done\n", result.stderr


@pytest.mark.parametrize("ordered", [True, False])
def test_the_sanitizer_knows_which_work_is_ordered(tmp_path: Path, ordered: bool) -> None:
    program = tmp_path / "program.py"
    program.write_text(ORDERED.format(ordered=ordered))
    result = run_python(program, TORCH_CUDA_SANITIZER="1")
    assert ("done" in result.stdout) == ordered, result.stderr
    assert ("CSAN detected a possible data race on tensor" in result.stderr) != ordered, result.stderr
