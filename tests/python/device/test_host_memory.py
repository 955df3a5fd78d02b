"""Pinned host memory: what is pinned, its statistics, locked pages, and what happens without memory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
import torch
import waits
from devices import DEVICE
from torch.utils.data import DataLoader, TensorDataset

Run = Callable[..., subprocess.CompletedProcess[str]]

COLUMNS = ("current", "peak", "allocated", "freed")
TIMES = ("total", "max", "min", "count", "avg")

# What the scripts below begin with: `has` compares the columns of one statistic.
PRELUDE = """
import torch
from torch import openreg

def pinned(size):
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)

def stat(name):
    nested = openreg.host_memory_stats_as_nested_dict()[name]
    return [nested[column] for column in ("current", "peak", "allocated", "freed")]

def has(**expected):
    got = {name: stat(name) for name in expected}
    assert got == expected, got
"""


def test_every_statistic_of_a_script_is_what_one_computes_by_hand(run_forked: Run) -> None:
    """Blocks of 1 KiB, 4 KiB and 1 KiB; each takes whole pages. Columns: current, peak, allocated, freed.

    PyTorch empties the host's cache only where a tensor of the device has been made.
    """
    run_forked(
        PRELUDE + "assert openreg.host_memory_stats() == openreg.host_memory_stats_as_nested_dict() == {}\n"
        "torch.empty(0, device='openreg')\n"
        "a, b, c = pinned(1000), pinned(4096), pinned(513)\n"
        "has(allocations=[3, 3, 3, 0], allocated_bytes=[6144, 6144, 6144, 0], locked_bytes=[12288, 12288, 12288, 0],\n"
        "    active_requests=[3, 3, 3, 0], active_bytes=[6144, 6144, 6144, 0])\n"
        "del a, b\n"
        "has(allocations=[3, 3, 3, 0], allocated_bytes=[6144, 6144, 6144, 0], locked_bytes=[12288, 12288, 12288, 0],\n"
        "    active_requests=[1, 3, 3, 2], active_bytes=[1024, 6144, 6144, 5120])\n"
        "a = pinned(900)\n"  # from the cache
        "empty = pinned(0)\n"  # takes nothing
        "has(allocations=[3, 3, 3, 0], active_requests=[2, 3, 4, 2], active_bytes=[2048, 6144, 7168, 5120])\n"
        "torch.accelerator.empty_host_cache()\n"  # that of b
        "has(allocations=[2, 3, 3, 1], allocated_bytes=[2048, 6144, 6144, 4096],\n"
        "    locked_bytes=[8192, 12288, 12288, 4096],\n"
        "    active_requests=[2, 3, 4, 2], active_bytes=[2048, 6144, 7168, 5120])\n"
        "openreg.reset_peak_host_memory_stats()\n"
        "has(allocations=[2, 2, 3, 1], allocated_bytes=[2048, 2048, 6144, 4096],\n"
        "    locked_bytes=[8192, 8192, 12288, 4096],\n"
        "    active_requests=[2, 2, 4, 2], active_bytes=[2048, 2048, 7168, 5120])\n"
        "stats = openreg.host_memory_stats()\n"
        "assert (stats['num_host_alloc'], stats['num_host_free']) == (3, 1)\n"
        "assert (stats['host_alloc_time.count'], stats['host_free_time.count']) == (3, 1)\n"
        "openreg.reset_accumulated_host_memory_stats()\n"
        "has(allocations=[2, 2, 0, 0], allocated_bytes=[2048, 2048, 0, 0], locked_bytes=[8192, 8192, 0, 0],\n"
        "    active_requests=[2, 2, 0, 0], active_bytes=[2048, 2048, 0, 0])\n"
        "stats = openreg.host_memory_stats()\n"
        "assert (stats['num_host_alloc'], stats['num_host_free']) == (0, 0)\n"
        "assert stats['host_alloc_time.count'] == stats['host_free_time.total'] == stats['host_alloc_time.avg'] == 0\n"
        "del a, c\n"
        "torch.accelerator.empty_host_cache()\n"
        "has(allocations=[0, 2, 0, 2], allocated_bytes=[0, 2048, 0, 2048], locked_bytes=[0, 8192, 0, 8192],\n"
        "    active_requests=[0, 2, 0, 2], active_bytes=[0, 2048, 0, 2048])\n"
    )


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_statistics_count_a_block_until_the_copy_that_uses_it_is_done(run_forked: Run) -> None:
    run_forked(
        PRELUDE + "x = torch.rand(1200, 1200, device='openreg')\n"
        "target = torch.empty(1024, dtype=torch.uint8, device='openreg')\n"
        "host = pinned(1024)\n"
        "torch.accelerator.synchronize()\n"
        "for _ in range(5): y = x @ x\n"
        "target.copy_(host, non_blocking=True)\n"
        "del host\n"
        "torch.accelerator.empty_host_cache()\n"
        "has(allocations=[1, 1, 1, 0], active_requests=[1, 1, 1, 0], active_bytes=[1024, 1024, 1024, 0])\n"
        "assert not openreg.current_stream().query()\n"
        "torch.accelerator.synchronize()\n"
        "torch.accelerator.empty_host_cache()\n"
        "has(allocations=[0, 1, 1, 1], active_requests=[0, 1, 1, 1], active_bytes=[0, 1024, 1024, 1024])\n"
    )


def test_statistics_have_the_names_of_torch_cuda():
    block = torch.empty(100, pin_memory=True)
    names = {f"{name}.{c}" for name in ("allocations", "allocated_bytes", "active_requests") for c in COLUMNS}
    names |= {f"{name}.{c}" for name in ("active_bytes", "locked_bytes") for c in COLUMNS}
    names |= {f"{name}.{c}" for name in ("host_alloc_time", "host_free_time") for c in TIMES}
    names |= {"num_host_alloc", "num_host_free"}
    stats = torch.openreg.host_memory_stats()
    assert set(stats) == names and list(stats) == sorted(names)
    assert all(isinstance(value, int) for value in stats.values())
    assert torch.openreg.host_memory_stats_as_nested_dict()["active_bytes"]["current"] == stats["active_bytes.current"]
    assert block.is_pinned()


def test_times_are_microseconds_of_the_calls_that_took_them():
    torch.accelerator.empty_host_cache()
    torch.openreg.reset_accumulated_host_memory_stats()
    torch.openreg.reset_peak_host_memory_stats()
    blocks = [torch.empty(1 << 22, dtype=torch.uint8, pin_memory=True) for _ in range(3)]
    times = torch.openreg.host_memory_stats_as_nested_dict()["host_alloc_time"]
    assert times["count"] == len(blocks)
    assert 0 < times["min"] <= times["avg"] <= times["max"] <= times["total"] < 60_000_000
    assert times["avg"] == times["total"] // 3


def test_a_request_that_fails_raises_out_of_memory_and_loses_nothing():
    torch.empty(0, device=DEVICE)
    block = torch.empty(1000, dtype=torch.uint8, pin_memory=True).fill_(3)
    torch.accelerator.empty_host_cache()
    before = torch.openreg.host_memory_stats()
    for size, text in ((1 << 50, "1.00 PiB"), ((1 << 62) + 1, "4.00 EiB")):
        with pytest.raises(torch.OutOfMemoryError, match=f"out of host memory .*request for {text}, in a block of"):
            torch.empty(size, dtype=torch.uint8, pin_memory=True)
    assert torch.openreg.host_memory_stats() == before
    assert block.eq(3).all() and block.is_pinned()


# Lowers the limit of locked memory, and gives up the capability that lifts it (root has it).
LIMITED = (
    PRELUDE
    + """
import ctypes, os, resource

CAP_IPC_LOCK = 14
libc = ctypes.CDLL(None, use_errno=True)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: bits 0 to 31, then the others
assert libc.capget(header, sets) == 0
sets[0] &= ~(1 << CAP_IPC_LOCK)
assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())

def limit(size):
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (size, hard))

def locked():
    with open("/proc/self/status") as status:
        system = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmLck:"))
    current = openreg.host_memory_stats()["locked_bytes.current"]
    assert current == system, (current, system)
    return current

PAGE = resource.getpagesize()
"""
)


def test_pages_are_locked_as_far_as_the_limit_allows_and_silently(run_forked: Run) -> None:
    """The statistic is compared with the system's own number after each step."""
    result = run_forked(
        LIMITED + "torch.empty(0, device='openreg')\n"
        "limit(23 * PAGE)\n"
        "a = pinned(16 * PAGE).fill_(1)\n"
        "assert locked() == 16 * PAGE\n"
        "b = pinned(16 * PAGE).fill_(2)\n"  # its first seven pages
        "assert locked() == 23 * PAGE\n"
        "c = pinned(PAGE).fill_(3)\n"  # nothing is left
        "assert locked() == 23 * PAGE\n"
        "assert a.is_pinned() and b.is_pinned() and c.is_pinned()\n"
        "assert [int(t.sum()) for t in (a, b, c)] == [16 * PAGE, 32 * PAGE, 3 * PAGE]\n"
        "del b\n"
        "torch.accelerator.empty_host_cache()\n"
        "assert locked() == 16 * PAGE\n"
        "d = pinned(4 * PAGE)\n"
        "assert locked() == 20 * PAGE\n"
        "has(locked_bytes=[20 * PAGE, 23 * PAGE, 27 * PAGE, 7 * PAGE], allocations=[3, 3, 4, 1])\n"
        "x = a.to('openreg', non_blocking=True)\n"
        "assert x.sum().item() == 16 * PAGE\n"
    )
    assert result.stdout == result.stderr == ""


@pytest.mark.parametrize("pages", [0, 1, 5, 64, 100])
def test_a_block_is_locked_up_to_any_limit(run_forked: Run, pages: int) -> None:
    run_forked(
        LIMITED + "torch.empty(0, device='openreg')\n"
        f"limit({pages} * PAGE)\n"
        "a = pinned(64 * PAGE).fill_(1)\n"
        f"assert locked() == min({pages}, 64) * PAGE\n"
        "del a\n"
        "torch.accelerator.empty_host_cache()\n"
        "assert locked() == 0\n"
    )


@pytest.mark.no_race_detection("pinned memory then lies in addresses that are reserved, which the limit does not count")
def test_cached_blocks_of_other_sizes_make_room_for_a_request(run_forked: Run) -> None:
    run_forked(
        PRELUDE + "import resource\n"
        "torch.empty(0, device='openreg')\n"
        "a = pinned(1 << 29)\n"
        "with open('/proc/self/status') as status:\n"
        "    size = next(int(line.split()[1]) << 10 for line in status if line.startswith('VmSize:'))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20), -1))\n"
        "try: pinned(1 << 28)\n"
        "except torch.OutOfMemoryError: pass\n"
        "else: raise AssertionError('there is no room for both')\n"
        "has(allocations=[1, 1, 1, 0], active_requests=[1, 1, 1, 0])\n"
        "del a\n"
        "a = pinned(1 << 28)\n"
        "has(allocations=[1, 1, 2, 1], active_requests=[1, 2, 2, 1],\n"
        "    allocated_bytes=[1 << 28, 1 << 29, 3 << 28, 1 << 29])\n"
    )


def test_a_forked_child_has_no_statistics_and_no_cache_and_does_not_hang(run_forked: Run) -> None:
    run_forked(
        PRELUDE + "import os\n"
        "a = pinned(1000)\n"
        "b = pinned(1000)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    assert openreg.host_memory_stats() == {} and not a.is_pinned()\n"
        "    openreg.reset_peak_host_memory_stats()\n"
        "    openreg.reset_accumulated_host_memory_stats()\n"
        "    del a\n"
        "    torch.accelerator.empty_host_cache()\n"
        "    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "has(active_requests=[2, 2, 2, 0])\n"
    )


def test_a_query_before_a_fork_does_not_keep_the_child_from_pinning_memory(run_forked: Run) -> None:
    run_forked(
        PRELUDE + "import os\n"
        "openreg.reset_peak_host_memory_stats()\n"
        "openreg.reset_accumulated_host_memory_stats()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    assert pinned(1000).is_pinned()\n"
        "    os._exit(7)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
    )


@pytest.mark.parametrize("cached", ["", "del a\n"])
def test_a_forked_child_of_a_process_that_pinned_memory_is_advised_to_spawn(run_forked: Run, cached: str) -> None:
    """Also if the device has not been used, whose message would be different."""
    result = run_forked(
        PRELUDE + "import os, sys\n"
        "a = pinned(1000)\n" + cached + "assert not openreg.is_initialized()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try: pinned(1000)\n"
        "    except RuntimeError as error: print(error)\n"
        "    sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    assert result.stdout == (
        "openreg: pinned memory cannot be used in a forked child of a process that has used it; "
        "use the spawn start method\n"
    )


REGISTERING = """
import mmap, torch, torch_openreg
stream = torch.openreg.Stream()  # the first use of the device
pages = mmap.mmap(-1, mmap.PAGESIZE)
there = torch.frombuffer(pages, dtype=torch.int64, count=1)
torch_openreg._C.register_pinned_memory(there.data_ptr(), mmap.PAGESIZE)
assert there.is_pinned()
with stream:
    torch.openreg._sleep(500_000_000)
    there.copy_(torch.full((1,), 7, device="openreg"), non_blocking=True)
    assert not stream.query()
    stream.synchronize()
assert there.item() == 7
torch_openreg._C.unregister_pinned_memory(there.data_ptr())
assert not there.is_pinned()
"""


def test_memory_of_the_program_is_pinned_once_it_is_registered(run_forked: Run) -> None:
    run_forked(REGISTERING)


def test_a_tensor_without_elements_is_not_pinned_as_with_cuda():
    for empty in (torch.empty(0, pin_memory=True), torch.empty(3, 0).pin_memory()):
        assert not empty.is_pinned()
        assert empty.to(DEVICE, non_blocking=True).shape == empty.shape


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: torch.ones(2, device=DEVICE).pin_memory(), RuntimeError, "only dense CPU tensors can be pinned"),
        (
            lambda: torch.eye(2, device=DEVICE).to_sparse().pin_memory(),
            RuntimeError,
            "only dense CPU tensors can be pinned",
        ),
        (lambda: torch.ones(2, device="meta").pin_memory(), RuntimeError, "only dense CPU tensors can be pinned"),
        (lambda: torch.empty(-1, pin_memory=True), RuntimeError, "negative dimension -1"),
        (lambda: torch.empty(1 << 62, pin_memory=True), RuntimeError, "Storage size calculation overflowed"),
        (lambda: torch.empty(1 << 32, 1 << 32, pin_memory=True), RuntimeError, "overflowed"),
        (
            lambda: torch.empty(2, device=DEVICE, pin_memory=True),
            RuntimeError,
            "nly dense CPU tensors can be pinned",
        ),
    ],
    ids=["device", "sparse on the device", "meta", "negative", "overflow", "overflow of the product", "factory"],
)
def test_what_cannot_be_pinned_is_refused_and_changes_nothing(make, error, sentence):
    before = torch.openreg.host_memory_stats()
    with pytest.raises(error, match=sentence):
        make()
    assert torch.openreg.host_memory_stats() == before


def test_a_sparse_tensor_of_the_cpu_has_its_parts_pinned():
    sparse = torch.eye(3).to_sparse().pin_memory()
    assert sparse.is_pinned() and sparse.indices().is_pinned() and sparse.values().is_pinned()
    assert torch.equal(sparse.to(DEVICE, non_blocking=True).to_dense().cpu(), torch.eye(3))


@pytest.mark.parametrize("start", [None, "spawn"])
def test_a_data_loader_with_workers_gives_pinned_batches_that_copy_without_blocking(start):
    """Two epochs with workers that persist; `None` starts them as DataLoader does by itself."""
    torch.ones(2, device=DEVICE).sum().item()  # the parent of the workers has used the device
    images, labels = torch.randn(40, 3, 8, 8), torch.arange(40)
    loader = DataLoader(
        TensorDataset(images, labels),
        batch_size=8,
        num_workers=2,
        pin_memory=True,
        persistent_workers=True,
        multiprocessing_context=start,
    )
    for _ in range(2):
        batches = []
        for batch in loader:
            assert all(part.is_pinned() for part in batch)
            with waits.no_waits():
                batches.append([part.to(DEVICE, non_blocking=True) for part in batch])
            del batch  # its memory is in the copies' hands
        assert torch.equal(torch.cat([batch[0] for batch in batches]).cpu(), images)
        assert torch.equal(torch.cat([batch[1] for batch in batches]).cpu(), labels)
