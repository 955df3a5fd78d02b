"""The allocator follows CUDA's rules although the device computes: what is reserved is what a GPU would reserve."""

from __future__ import annotations

from child_processes import run_python

PROLOGUE = """
import torch

MIB = 1 << 20


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def used():
    return torch.cuda.memory_allocated() / MIB, torch.cuda.memory_reserved() / MIB


def segments():
    return [(each["total_size"] // MIB, each["segment_pool_id"]) for each in torch.cuda.memory_snapshot()]


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / MIB
"""

RULES = """
own, small, large = empty(11 * MIB), empty(1), empty(3 * MIB)
assert sorted(segments()) == [(2, (0, 0)), (12, (0, 0)), (20, (0, 0))]
assert used() == (15 + 512 / MIB, 34)  # a rest of 1 MiB is not split off
del small, large, own
torch.cuda.empty_cache()
assert used() == (0, 0) and not segments()

pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    x = empty(1)
assert segments() == [(2, pool.id)]
del x, pool
assert used() == (0, 0)

graph = torch.cuda.CUDAGraph()
x = torch.ones(1024, 1024, device="cuda")
with torch.cuda.graph(graph):
    y = x @ x
assert sorted(segments()) == [(2, (0, 0)), (20, (0, 0)), (20, graph.pool())]
graph.replay()
assert y[0, 0].item() == 1024
del x, y, graph
torch.cuda.empty_cache()

kept = empty(500 * MIB)
del kept
x = empty(700 * MIB)
stats = torch.cuda.memory_stats()
assert (stats["num_alloc_retries"], stats["num_ooms"], used()) == (1, 0, (700, 700))
try:
    empty(400 * MIB)
except torch.cuda.OutOfMemoryError as error:
    assert "Of the allocated memory 700.00 MiB is allocated by PyTorch, and 0 bytes is reserved" in str(error), error
else:
    raise AssertionError
del x
torch.cuda.empty_cache()

# Of the host's memory it takes what is used, in huge pages.
torch.ones(1, device="cuda")
before = resident()
kept = []
for _ in range(12):
    with torch.cuda.stream(torch.cuda.Stream()):
        kept.append(torch.ones(300_000, device="cuda"))
torch.cuda.synchronize()
assert used()[1] == 12 * 20 + 2
assert resident() - before < 12 * 2 + 30
"""

EXPANDABLE = """
small, large = empty(1), empty(11 * MIB)
assert used() == (11 + 512 / MIB, 22)  # pages of 2 and 20 MiB, and all rests are split off
assert all(each["is_expandable"] for each in torch.cuda.memory_snapshot())
more = empty(10 * MIB)
assert used()[1] == 42
del large, more
torch.cuda.empty_cache()
assert used()[1] == 2
"""

LIMITED = """
block = empty(100 * MIB)
address = block.data_ptr()
del block
other = empty(30 * MIB)
assert other.data_ptr() != address and used()[1] == 130  # blocks of 40 MiB and more are not split
"""


def run(program: str, **variables: str) -> None:
    done = run_python("-c", PROLOGUE + program, OPENREG_CUDA="1:1", TORCH_OPENREG_MEMORY="1GiB", **variables)
    assert done.returncode == 0, done.stderr


def test_memory_is_reserved_pooled_returned_and_exhausted_as_on_a_gpu() -> None:
    run(RULES)


def test_settings_of_the_allocator_have_cudas_effects() -> None:
    run(EXPANDABLE, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    run(LIMITED, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:40")
