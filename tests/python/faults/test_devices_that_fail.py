"""Devices that have failed for good: which calls raise, and which still answer, as on a GPU."""

from __future__ import annotations

import pytest

# Observed on a GPU after a device-side assertion, each call in a process of its own.
PROGRAM = """
import torch
openreg = torch.openreg

x = torch.arange(4.0, device="openreg")
pinned = torch.ones(4).pin_memory()
other = torch.ones(4, device="openreg:1")
stream, side = openreg.current_stream(), openreg.Stream()
begin, end = openreg.Event(enable_timing=True), openreg.Event(enable_timing=True)
begin.record(); (x + 1).abs_(); end.record()
openreg.synchronize()
graph = openreg.CUDAGraph()
with openreg.graph(graph):
    y = x + 1
generator = torch.Generator(device="openreg")
openreg.synchronize()

FAIL

def raises(what, call):
    for _ in range(2):
        try:
            call()
        except torch.AcceleratorError as error:
            assert SENTENCE in str(error), (what, error)
            assert error.error_code == CODE, (what, error.error_code)
        else:
            raise AssertionError(f"{what} did not raise")

for what, call in {
    "synchronize": openreg.synchronize,
    "torch.accelerator.synchronize": torch.accelerator.synchronize,
    "Stream.synchronize": stream.synchronize,
    "Stream.query": stream.query,
    "synchronize of another stream": side.synchronize,
    "query of another stream": side.query,
    "Event.synchronize": end.synchronize,
    "Event.query": end.query,
    "elapsed_time": lambda: begin.elapsed_time(end),
    "record": lambda: openreg.Event().record(),
    "record again": begin.record,
    "wait_stream": lambda: side.wait_stream(stream),
    "wait_event": lambda: side.wait_event(end),
    "a launch": lambda: x + 1,
    "a launch on another stream": lambda: launch_on(side),
    "a launch in place": lambda: x.add_(1),
    "a random number": lambda: torch.rand(3, device="openreg"),
    "to the CPU": x.cpu,
    "item": lambda: x[0].item(),
    "from the CPU": lambda: torch.ones(3).to("openreg"),
    "from pinned memory": lambda: x.copy_(pinned, non_blocking=True),
    "to the other device": lambda: x.to("openreg:1"),
    "from the other device": lambda: other.to("openreg:0"),
    "repr": lambda: repr(x),
    "a small tensor": lambda: torch.empty(3, device="openreg"),
    "a large tensor": lambda: torch.empty(1 << 24, device="openreg"),
    "raw memory": lambda: openreg.caching_allocator_alloc(512),
    "empty_cache": openreg.empty_cache,
    "mem_get_info": openreg.mem_get_info,
    "manual_seed": lambda: openreg.manual_seed(1),
    "get_rng_state": openreg.get_rng_state,
    "set_rng_state": lambda: openreg.set_rng_state(torch.zeros(16, dtype=torch.uint8)),
    "pinning": lambda: torch.ones(3).pin_memory(),
    "replay": graph.replay,
    "capture": lambda: capture(),
    "sending to another process": lambda: x.untyped_storage()._share_openreg_()
        if hasattr(x.untyped_storage(), "_share_openreg_") else send(x),
}.items():
    def launch_on(stream):
        with openreg.stream(stream):
            x + 1
    def capture():
        with openreg.graph(openreg.CUDAGraph(), stream=side):
            x + 1
    def send(tensor):
        from multiprocessing.reduction import ForkingPickler
        ForkingPickler.dumps(tensor)
    raises(what, call)

allocated = openreg.memory_allocated()
view = x[1:].view(3)
assert view.shape == (3,)
del y, graph
assert openreg.memory_allocated() < allocated
allocated = openreg.memory_allocated()
del x, view
assert openreg.memory_allocated() < allocated
del pinned, generator
assert openreg.memory_stats()["allocation.all.current"] >= 0
openreg.memory_snapshot()
openreg.reset_peak_memory_stats()
assert openreg.max_memory_allocated() == openreg.memory_allocated()
openreg.Stream(), openreg.Event()
assert openreg.current_stream() == stream
openreg.set_device(0)
assert openreg.get_device_properties(0).name == "openreg"
assert openreg.is_available() and openreg.device_count() == 2
assert torch.ones(3).is_pinned() is False

# The other device and the host go on.
with openreg.device(1):
    assert (other + 1).tolist() == [2, 2, 2, 2]
    assert torch.ones(3).pin_memory().to("openreg").tolist() == [1, 1, 1]
    openreg.synchronize()
    openreg.mem_get_info()
    big = torch.empty(1 << 20, device="openreg"); del big
END
"""

STICKY = """
bad = x[torch.tensor([9], device="openreg")]
try:
    openreg.synchronize()
    raise SystemExit("no error")
except torch.AcceleratorError:
    pass
SENTENCE, CODE = "out of bounds", 710
"""

LOST = """
from torch.openreg import faults
with faults.inject("lost", at="aten::add"):
    try:
        x + 1
        raise SystemExit("no error")
    except torch.AcceleratorError:
        pass
SENTENCE, CODE = "openreg:0: the device is lost: injected fault (lost@aten::add)", 46
"""

RESET = """
openreg.reset_device(0)
assert torch.ones(3, device="openreg").add(1).tolist() == [2, 2, 2]
openreg.synchronize()
print("usable again")
"""


def program(fail: str, end: str) -> str:
    return PROGRAM.replace("FAIL", fail).replace("END", end)


@pytest.mark.parametrize("end", ["", RESET], ids=["to the end", "reset"])
def test_after_a_sticky_error_each_call_that_needs_the_device_raises_it(end, run_forked):
    done = run_forked(program(STICKY, end), TORCH_OPENREG_STICKY_ERRORS="1")
    assert done.stdout == ("usable again\n" if end else "")
    assert done.stderr == ""  # it exits normally, and nothing is left to report


@pytest.mark.parametrize("end", ["", RESET], ids=["to the end", "reset"])
def test_after_the_loss_of_a_device_each_call_that_needs_it_raises(end, run_forked):
    done = run_forked(program(LOST, end))
    assert done.stdout == ("usable again\n" if end else "")
    assert done.stderr == ""


def test_by_default_an_error_is_raised_once(run_forked):
    code = """
import torch
x = torch.arange(4.0, device="openreg")
x[torch.tensor([9], device="openreg")]
try:
    torch.openreg.synchronize()
except torch.AcceleratorError as error:
    assert error.error_code == 1
assert (x + 1).tolist() == [1, 2, 3, 4]
"""
    run_forked(code, TORCH_OPENREG_STICKY_ERRORS=None)


def test_a_node_of_a_graph_loses_its_own_device(run_forked):
    run_forked("""
import torch
from torch.openreg import faults

openreg = torch.openreg
x, y = torch.ones(4, device="openreg:0"), torch.ones(4, device="openreg:1")
there = openreg.Stream(1)
openreg.synchronize(0)
openreg.synchronize(1)
graph = openreg.CUDAGraph()
with openreg.graph(graph):
    x.add_(1)
    there.wait_stream(openreg.current_stream(0))
    with openreg.stream(there):
        y.mul_(2)
    openreg.current_stream(0).wait_stream(there)
try:
    with faults.inject("lost", at="launch:1", device=1):
        graph.replay()
except torch.AcceleratorError as error:
    assert "openreg:1: the device is lost" in str(error), error
assert (x + 1).sum().item() == 8
try:
    y + 1
except torch.AcceleratorError as error:
    assert "openreg:1: the device is lost" in str(error), error
else:
    raise AssertionError
""")


def test_all_faults_of_a_copy_occur(run_forked):
    run_forked("""
import time
import torch
from torch.openreg import faults

x = torch.ones(4, device="openreg")
x.cpu()
begin = time.monotonic()
with faults.inject("error", at="copy:1"), faults.inject("slow", at="copy:1", delay=0.2) as slow:
    try:
        x.cpu()
    except torch.AcceleratorError as error:
        assert "injected fault (error@copy:1): aten::copy_ of openreg:0" in str(error), error
    else:
        raise AssertionError
assert slow.fired == 1 and time.monotonic() - begin >= 0.2
""")


def test_an_error_of_a_call_is_not_the_devices(run_forked):
    code = """
import torch
x = torch.arange(4.0, device="openreg")
negative = -torch.eye(2, device="openreg")
for call in (lambda: x @ torch.ones(3, device="openreg"), lambda: torch.linalg.cholesky(negative)):
    try:
        call()
        raise SystemExit("no error")
    except RuntimeError as error:
        assert not isinstance(error, torch.AcceleratorError), error
assert (x + 1).tolist() == [1, 2, 3, 4]
"""
    run_forked(code, TORCH_OPENREG_STICKY_ERRORS="1")


def test_with_blocking_launches_an_error_sticks_too(run_forked):
    code = """
import torch
x = torch.arange(4.0, device="openreg")
try:
    x[torch.tensor([9], device="openreg")]
    raise SystemExit("no error")
except Exception as error:
    assert "out of bounds" in str(error)
try:
    x + 1
    raise SystemExit("no error")
except torch.AcceleratorError as error:
    assert error.error_code == 710
"""
    run_forked(code, TORCH_OPENREG_STICKY_ERRORS="1", TORCH_OPENREG_LAUNCH_BLOCKING="1")


def test_a_reset_loses_memory_or_keeps_it(run_forked):
    code = """
import torch
from torch.openreg import faults, reset_device
x, other = torch.ones(4, device="openreg:1"), torch.ones(4, device="openreg:0")
torch.openreg.synchronize(1)  # the loss of a device skips what is queued

def lose():
    with faults.inject("lost", at="allocation:1", device=1):
        try:
            torch.empty(1, device="openreg:1")
            raise SystemExit("no error")
        except torch.AcceleratorError:
            pass

lose()
reset_device("openreg:1", keep_memory=True)
assert x.tolist() == [1, 1, 1, 1]
lose()
reset_device(1)
assert x.isnan().all()
assert other.tolist() == [1, 1, 1, 1]
x.fill_(3)
assert x.tolist() == [3, 3, 3, 3]
"""
    run_forked(code)


def test_a_reset_is_no_invalid_write_to_memory(run_forked):
    code = """
import torch
from torch.openreg import faults, reset_device
x, freed = torch.ones(4, device="openreg"), torch.ones(4, device="openreg")
torch.openreg.synchronize()
del freed
reset_device(0)
torch.openreg.synchronize()
x.fill_(1)
assert x.tolist() == [1, 1, 1, 1]
y = torch.empty(4, device="openreg").fill_(2)
del x
assert y.tolist() == [2, 2, 2, 2]
"""
    run_forked(code, TORCH_OPENREG_DEBUG_MEMORY="1")


def test_memory_that_was_freed_meanwhile_is_used_again(run_forked):
    code = """
import torch
from torch.openreg import faults, reset_device
x = torch.ones(1 << 20, device="openreg")
side = torch.openreg.Stream()
x.record_stream(side)
with faults.inject("lost", at="launch:1"):
    try:
        x + 1
    except torch.AcceleratorError:
        pass
address = x.data_ptr()
del x
reset_device(0)
torch.openreg.synchronize()
assert torch.openreg.memory_allocated() == 0
assert torch.ones(1 << 20, device="openreg").data_ptr() == address
torch.openreg.empty_cache()
"""
    run_forked(code)


def test_a_host_that_waits_when_the_device_is_lost_gets_the_error(run_forked):
    code = """
import threading, torch
from torch.openreg import faults
x = torch.ones(4, device="openreg")
torch.openreg.synchronize()
errors = []

def wait():
    try:
        torch.openreg.default_stream(0).synchronize()
    except torch.AcceleratorError as error:
        errors.append(str(error))

with faults.inject("hang", at="launch:1"), faults.inject("lost", at="launch:2"):
    x + 1
    waiting = threading.Thread(target=wait)
    waiting.start()
    try:
        x + 1
    except torch.AcceleratorError:
        pass
    waiting.join()
assert len(errors) == 1 and "the device is lost" in errors[0], errors
"""
    run_forked(code)
