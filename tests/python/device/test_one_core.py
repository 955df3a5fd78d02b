"""On a single core, what no host waits for is computed all the same."""

from __future__ import annotations


def test_a_host_that_polls_makes_progress(run_python):
    """On an event, on a stream, and on an error that only a query collects."""
    result = run_python(
        """
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import torch

x = torch.ones(16, device="openreg")

def polled(done):
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end, "no progress"

for _ in range(50):
    y = x + 1
    event = torch.openreg.Event()
    event.record()
    polled(event.query)
for _ in range(5000):  # more than a queue holds
    y = y + 1
polled(torch.openreg.current_stream().query)
assert y.tolist() == [5002.0] * 16

x[torch.tensor([99], device="openreg")]  # the launch returns
try:
    polled(torch.openreg.current_stream().query)
except torch.AcceleratorError as error:
    print("late error:", error)
"""
    )
    assert "late error:" in result.stdout
