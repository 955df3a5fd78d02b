"""The most memory that a part of the program uses."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.openreg.memory import peak

MIB = 1 << 20


def block(mib: int, device: str = "openreg") -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device=device)


def test_a_peak_is_that_of_its_scope():
    kept = block(8)
    block(64)
    at_begin = torch.openreg.memory_allocated()
    with peak() as measured:
        assert (measured.allocated, measured.growth) == (at_begin, 0)
        block(4)
        block(16)
        assert measured.growth == 16 * MIB
        kept = block(2)
    assert measured.growth == 16 * MIB
    assert measured.allocated == at_begin + 16 * MIB
    assert measured.reserved >= measured.allocated
    block(128)
    assert measured.growth == 16 * MIB and kept.numel() == 2 * MIB
    assert repr(measured).startswith(f"Peak(allocated={measured.allocated}, reserved=")


def test_scopes_nest_and_overlap():
    with peak() as outer:
        block(32)
        with peak() as inner:
            block(8)
            torch.openreg.reset_peak_memory_stats()
        first, second = peak(), peak()
        a, b = first.__enter__(), second.__enter__()
        block(4)
        first.__exit__(None, None, None)
        block(12)
        second.__exit__(None, None, None)
    assert [each.growth // MIB for each in (outer, inner, a, b)] == [32, 8, 4, 12]


def test_the_other_peaks_stay():
    torch.openreg.reset_peak_memory_stats()
    block(64)
    highest = torch.openreg.max_memory_allocated()
    with peak() as measured:
        block(8)
        assert torch.openreg.max_memory_allocated() == highest
    assert torch.openreg.max_memory_allocated() == highest
    assert measured.allocated < highest
    assert torch.openreg.memory_stats()["allocated_bytes.all.peak"] == highest


def test_a_scope_is_of_one_device_and_all_threads():
    with peak(1) as second, peak("openreg:0") as first:
        block(16, "openreg:0")
        thread = threading.Thread(target=block, args=(4, "openreg:1"))
        thread.start()
        thread.join()
    assert (first.growth, second.growth) == (16 * MIB, 4 * MIB)


def test_a_scope_ends_with_an_exception():
    with pytest.raises(ZeroDivisionError), peak() as measured:
        block(4)
        _ = 1 / 0
    block(8)
    assert measured.growth == 4 * MIB
