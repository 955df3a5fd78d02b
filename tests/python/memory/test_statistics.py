"""Statistics: the names that torch.cuda documents, each figure exact, per device."""

from __future__ import annotations

import re

import pytest
import torch

from torch_openreg.openreg.memory_table import memory_summary_of

MIB = 1 << 20


def empty(size, device="openreg"):
    return torch.empty(size, dtype=torch.uint8, device=device)


def documented_names():
    """The names in the docstring of torch.cuda.memory_stats. It writes "allocated" for what is called "allocation"."""
    names = set()
    for name in re.findall(r'``"([a-z_.{},]+)"``', torch.cuda.memory_stats.__doc__):
        alternatives = [part.strip("{}").split(",") for part in re.findall(r"\{[^}]*\}|[a-z_]+", name)]
        expanded = [""]
        for options in alternatives:
            expanded = [f"{prefix}.{option}" for prefix in expanded for option in options]
        names.update(re.sub(r"^allocated\.", "allocation.", one[1:]) for one in expanded)
    return names - {"_", "reserved_bytes_by_private_pools"}  # parts of names


def test_all_documented_names_are_there_and_sorted():
    x = empty(1)
    stats = torch.openreg.memory_stats()
    assert len(documented_names()) == 9 * 3 * 4 + 2 * 4 + 7
    assert documented_names() <= set(stats)
    assert list(stats) == sorted(stats)
    assert x.numel() == 1


def a_scripted_sequence():
    def empty(size):
        return torch.empty(size, dtype=torch.uint8, device="openreg")

    def expect(core, **counters):
        stats = dict(torch.openreg.memory_stats())
        columns = ("current", "peak", "allocated", "freed")
        expected = {f"oversize_{what}.{c}": 0 for what in ("allocations", "segments") for c in columns}
        expected |= {"max_split_size": -1, "num_oom_rejections": 0} | counters
        for name, (small, large, peak) in core.items():
            total = [small[0] + large[0], peak, small[2] + large[2], small[3] + large[3]]
            for pool, values in (("small_pool", small), ("large_pool", large), ("all", total)):
                expected |= {f"{name}.{pool}.{c}": value for c, value in zip(columns, values, strict=True)}
        differences = {n: (stats.get(n), expected.get(n)) for n in stats | expected if stats.get(n) != expected.get(n)}
        assert not differences, f"name: (got, expected) {differences}"

    # What is expected, for each name: (current, peak, allocated, freed) of small and of large blocks, and the peak of
    # both together, which the other numbers do not give.
    a = empty(1000)  # 1 KiB of a small segment, which has 2 MiB
    b = empty(3 * MIB + 1)  # 3 MiB + 512 of a large segment of 4 MiB, of which 1 MiB - 512 remains
    c = empty(2 * MIB)  # the segment gets 2 MiB more; as much as before remains
    del b
    try:
        empty(63 * MIB)
        raise AssertionError("the device has 64 MiB")
    except torch.OutOfMemoryError:
        pass  # of the memory of b the first 2 MiB went back, where the segment now begins anew
    blocks = ((1, 1, 1, 0), (1, 2, 2, 1), 3)
    size = ((1024, 1024, 1024, 0), (2 * MIB, 5 * MIB + 512, 5 * MIB + 512, 3 * MIB + 512), 5 * MIB + 512 + 1024)
    rest = 2 * MIB - 1024
    expect(
        {
            "allocation": blocks,
            "active": blocks,
            "allocated_bytes": size,
            "active_bytes": size,
            "requested_bytes": (
                (1000, 1000, 1000, 0),
                (2 * MIB, 5 * MIB + 1, 5 * MIB + 1, 3 * MIB + 1),
                5 * MIB + 1 + 1000,
            ),
            "segment": ((1, 1, 1, 0), (1, 1, 2, 1), 2),
            "reserved_bytes": ((2 * MIB, 2 * MIB, 2 * MIB, 0), (4 * MIB, 6 * MIB, 6 * MIB, 2 * MIB), 8 * MIB),
            "inactive_split": ((1, 1, 1, 0), (2, 2, 2, 0), 3),
            "inactive_split_bytes": ((rest, rest, rest, 0), (2 * MIB, 4 * MIB, 4 * MIB, 2 * MIB), 4 * MIB + rest),
        },
        num_alloc_retries=1,
        num_ooms=1,
        num_sync_all_streams=1,
        num_device_alloc=3,
        num_device_free=1,
    )

    del a, c
    torch.openreg.empty_cache()
    blocks = ((0, 1, 1, 1), (0, 2, 2, 2), 3)
    size = ((0, 1024, 1024, 1024), (0, 5 * MIB + 512, 5 * MIB + 512, 5 * MIB + 512), 5 * MIB + 512 + 1024)
    expect(
        {
            "allocation": blocks,
            "active": blocks,
            "allocated_bytes": size,
            "active_bytes": size,
            "requested_bytes": ((0, 1000, 1000, 1000), (0, 5 * MIB + 1, 5 * MIB + 1, 5 * MIB + 1), 5 * MIB + 1 + 1000),
            "segment": ((0, 1, 1, 1), (0, 1, 2, 2), 2),
            "reserved_bytes": ((0, 2 * MIB, 2 * MIB, 2 * MIB), (0, 6 * MIB, 6 * MIB, 6 * MIB), 8 * MIB),
            "inactive_split": ((0, 1, 1, 1), (0, 2, 2, 2), 3),
            "inactive_split_bytes": ((0, rest, rest, rest), (0, 4 * MIB, 4 * MIB, 4 * MIB), 4 * MIB + rest),
        },
        num_alloc_retries=1,
        num_ooms=1,
        num_sync_all_streams=2,
        num_device_alloc=3,
        num_device_free=3,
    )


def test_each_figure_of_a_scripted_sequence_is_what_it_is_by_hand(run_alone):
    run_alone(a_scripted_sequence, TORCH_OPENREG_MEMORY="64MiB")


def test_a_refused_allocation_changes_no_figure_of_what_is_held():
    x = empty(5 * MIB)
    before = torch.openreg.memory_stats()
    with pytest.raises(torch.OutOfMemoryError):
        empty(2 * torch.openreg.mem_get_info()[1])
    after = torch.openreg.memory_stats()
    held = ("allocation.", "allocated_bytes.", "active.", "active_bytes.", "requested_bytes.")
    assert {name for name in before if name.startswith(held) and before[name] != after[name]} == set()
    assert after["num_ooms"] == before["num_ooms"] + 1
    assert after["num_alloc_retries"] == before["num_alloc_retries"] + 1
    assert x.numel() == 5 * MIB


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_memory_that_another_stream_uses_is_active_until_that_is_done(stream_at_work):
    torch.openreg.memory_stats()
    x = empty(3 * MIB)
    before = torch.openreg.memory_stats()
    x.record_stream(stream_at_work)
    del x
    pending = torch.openreg.memory_stats()
    assert not stream_at_work.query(), "too fast a machine for this test"
    stream_at_work.synchronize()
    empty(1)  # looks for frees that are due
    after = torch.openreg.memory_stats()
    for stats, active in ((pending, 0), (after, 3 * MIB)):
        assert before["allocated_bytes.all.current"] - stats["allocated_bytes.all.current"] == 3 * MIB
        assert before["active_bytes.all.current"] - stats["active_bytes.all.current"] >= active
    assert pending["active.all.current"] == before["active.all.current"]
    assert after["active.all.current"] < before["active.all.current"]


def test_figures_are_of_one_device():
    empty(1), empty(1, "openreg:1")
    before = torch.openreg.memory_stats(0)
    x = empty(3 * MIB, "openreg:1")
    assert torch.openreg.memory_stats(0) == before
    assert torch.openreg.memory_stats("openreg:1") != before
    with torch.openreg.device(1):
        assert torch.openreg.memory_stats() == torch.openreg.memory_stats(1)
    torch.openreg.reset_peak_memory_stats(1)
    torch.openreg.reset_accumulated_memory_stats(1)
    assert torch.openreg.memory_stats(0) == before
    assert x.numel() == 3 * MIB


def test_sizes_in_the_summary_have_the_unit_that_keeps_them_short():
    sizes = (1023, 1024, 1536 * 2**10, 5 * 2**30, 3 * 2**40, 5000 * 2**40)
    rows = [memory_summary_of(0, {"allocated_bytes.all.current": size}, True).splitlines()[5] for size in sizes]
    assert [row[24:38].strip() for row in rows] == [
        "1023 bytes",
        "1.00 KiB",
        "1.50 MiB",
        "5.00 GiB",
        "3.00 TiB",
        "4.88 PiB",
    ]


def test_reset_of_peaks_starts_them_from_what_is_current():
    x = empty(3 * MIB)
    empty(5 * MIB)
    before = torch.openreg.memory_stats()
    assert before["allocated_bytes.all.peak"] > before["allocated_bytes.all.current"]
    torch.openreg.reset_peak_memory_stats()
    after = torch.openreg.memory_stats()
    for name in before:
        of_current = name.removesuffix("peak") + "current"
        assert after[name] == (before[of_current] if name.endswith(".peak") else before[name]), name
    assert x.numel() == 3 * MIB


def test_reset_of_what_is_accumulated_leaves_current_and_peak():
    x = empty(3 * MIB)
    empty(5 * MIB)
    before = torch.openreg.memory_stats()
    torch.openreg.reset_accumulated_memory_stats()
    after = torch.openreg.memory_stats()
    for name in before:
        is_accumulated = name.endswith((".allocated", ".freed")) or name.startswith("num_")
        assert after[name] == (0 if is_accumulated else before[name]), name
    del x
    assert torch.openreg.memory_stats()["allocated_bytes.all.freed"] == 3 * MIB


def test_the_old_name_of_the_reset_warns():
    empty(5 * MIB)
    with pytest.warns(FutureWarning, match="reset_peak_memory_stats"):
        torch.openreg.reset_max_memory_allocated()
    assert torch.openreg.max_memory_allocated() == torch.openreg.memory_allocated()


def test_pytorchs_functions_give_the_same_figures():
    x = empty(3 * MIB)
    of_torch, of_openreg = torch.accelerator.memory_stats(0), torch.openreg.memory_stats(0)
    assert of_torch.items() <= of_openreg.items()
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        assert getattr(torch.accelerator, name)(0) == getattr(torch.openreg, name)(device=0) > 0
    assert x.numel() == 3 * MIB


def test_nested_figures_are_the_flat_ones():
    x = empty(3 * MIB)
    nested, flat = torch.openreg.memory_stats_as_nested_dict(), torch.openreg.memory_stats()
    assert nested["allocated_bytes"]["large_pool"]["peak"] == flat["allocated_bytes.large_pool.peak"] >= 3 * MIB
    assert nested["num_ooms"] == flat["num_ooms"]
    assert x.numel() == 3 * MIB


def before_the_first_use():
    assert torch.openreg.memory_stats() == torch.openreg.memory_stats_as_nested_dict() == {}
    assert torch.openreg.memory_allocated() == torch.openreg.max_memory_reserved() == 0
    assert torch.openreg.memory_snapshot() == []
    assert "0 bytes" in torch.openreg.memory_summary()
    torch.openreg.empty_cache()
    torch.openreg.reset_peak_memory_stats()
    assert not torch.openreg.is_initialized()


def test_looking_is_not_a_use_of_the_device(run_alone):
    run_alone(before_the_first_use)


def test_the_summary_has_a_row_for_each_figure():
    x = empty(3 * MIB)
    stats = torch.openreg.memory_stats()
    rows = {line[:24].strip(): line[24:].split() for line in torch.openreg.memory_summary().splitlines() if line[24:]}
    assert rows["Allocations"] == [
        str(stats[f"allocation.all.{column}"]) for column in ("current", "peak", "allocated", "freed")
    ]
    assert rows["Reserved segments"][0] == str(stats["segment.all.current"])
    assert rows["Allocated memory"][0] == f"{stats['allocated_bytes.all.current'] / MIB:.2f}"
    assert f"out of memory: {stats['num_ooms']}, " in torch.openreg.memory_summary()
    split = [line for line in torch.openreg.memory_summary().splitlines() if "in large blocks" in line]
    assert len(split) == 9
    assert "in large blocks" not in torch.openreg.memory_summary(abbreviated=True)
    assert x.numel() == 3 * MIB
