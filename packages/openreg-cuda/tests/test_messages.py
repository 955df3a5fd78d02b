"""Messages name the device as the program does: cuda."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch
from child_processes import run_python

SOURCES = Path(__file__).resolve().parents[3] / "cpp"

_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_COMMENT = re.compile(r"(^|\s)//.*")
# What begins an error, and names of kernels, threads, files and functions.
_NO_DEVICE = re.compile(r"^openreg: |openreg::|openreg[-_]|_openreg")
# Names of the package and of what other programs read.
ALLOWED = {
    "backend/profiler.cpp": {"openreg"},
    "backend/trace_activities.cpp": {"openreg"},
    "bindings/device.cpp": {"openreg", "The device's name: 'openreg'.", "Rate of the cycles that torch.openreg._sleep"},
    "bindings/module.cpp": {"The functions that torch.openreg needs from C++"},
    "address_space/ipc_file.cpp": {"openreg"},
    "runtime/graph.cpp": {"digraph openreg"},
}


def names_in(text: str) -> list[str]:
    """The literals of a source that name the device or its module."""
    code = _COMMENT.sub("", "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#")))
    return [each for each in _LITERAL.findall(code) if "openreg" in _NO_DEVICE.sub("", each)]


def test_no_source_spells_the_name_of_the_device() -> None:
    found = []
    for source in sorted(SOURCES.rglob("*.[ch]*")):
        path = source.relative_to(SOURCES).as_posix()
        if path.startswith("slot/") or source.suffix not in (".cpp", ".h"):
            continue
        allowed = ALLOWED.get(path, set())
        found += [f"{path}: {each}" for each in names_in(source.read_text()) if not each.startswith(tuple(allowed))]
    assert not found, "\n".join(found) + "\nuse device_name() of base/device_name.h"


@pytest.mark.parametrize(
    "literal",
    ['"stream 1 of openreg:"', '"torch.openreg.synchronize()"', '"expected an openreg device"', '"openreg:"'],
)
def test_the_search_finds_a_name(literal: str) -> None:
    assert names_in(f"throw Error({literal});") == [literal.strip('"')]


def graph_on_the_default_stream() -> None:
    torch.cuda.CUDAGraph().capture_begin()


def wrong_index() -> None:
    table = torch.ones(4, device="cuda")
    table[torch.tensor([9], device="cuda")]
    torch.cuda.synchronize()


def times_of_two_devices() -> None:
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    for index, event in enumerate(events):
        event.record(torch.cuda.current_stream(index))
        event.synchronize()
    events[0].elapsed_time(events[1])


def another_device_of_an_event() -> None:
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(0))
    event.record(torch.cuda.current_stream(1))


def no_such_stream() -> None:
    torch.cuda.ExternalStream(12345, device="cuda:1")


def another_generator() -> None:
    torch.randn(2, device="cuda:1", generator=torch.Generator("cuda:0"))


MESSAGES = {
    graph_on_the_default_stream: r"default stream of cuda:0\); use torch\.cuda\.graph\(\)",
    wrong_index: "failed on cuda:0, stream 0",
    times_of_two_devices: "events of cuda:0 and cuda:1",
    another_device_of_an_event: "expected cuda:0",
    no_such_stream: "^cuda:1 has no stream with this handle",
    another_generator: "expected cuda:1|device",
}


@pytest.mark.parametrize("fail", MESSAGES, ids=lambda fail: fail.__name__)
def test_an_error_names_the_device(fail) -> None:
    with pytest.raises(Exception, match=MESSAGES[fail]) as caught:
        fail()
    assert not re.search(r"openreg:\d|torch\.openreg", str(caught.value))


def test_a_synchronizing_call_is_named_as_by_cuda() -> None:
    x = torch.ones(2, device="cuda")
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with pytest.warns(UserWarning, match="called a synchronizing CUDA operation"):
            x[0].item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_tables_name_the_device() -> None:
    assert "Memory of cuda:0" in torch.cuda.memory_summary(0)
    assert torch.cuda.list_gpu_processes(0).startswith("cuda:0\n")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.memory_cached()
        torch.cuda.reset_max_memory_cached()
    assert caught and not any("openreg" in str(each.message) for each in caught)


RACE = """
import torch
x = torch.ones(1 << 16, device="cuda")
with torch.cuda.stream(torch.cuda.Stream()):
    y = x + 1
"""
HOST = "import ctypes, torch; ctypes.string_at(torch.ones(4, device='cuda').data_ptr(), 4)"
LOST = "import torch; torch.ones(2, device='cuda'); torch.ones(2, device='cuda').add_(1); torch.cuda.synchronize()"


@pytest.mark.parametrize(
    ("source", "expected", "settings"),
    [
        (RACE, "of cuda:0", {"TORCH_OPENREG_DETECT_RACES": "1"}),
        (HOST, "accessed device memory of cuda:0 (", {}),
        (LOST, "torch.cuda.reset_device(0)", {"TORCH_OPENREG_FAULTS": "lost@launch:2"}),
    ],
    ids=["race", "host access", "lost device"],
)
def test_a_program_that_ends_names_the_device(source: str, expected: str, settings: dict[str, str]) -> None:
    result = run_python("-c", source, **settings)
    assert result.returncode != 0 and expected in result.stderr, result.stderr
    assert not re.search(r"openreg:\d|torch\.openreg", result.stderr)
