"""Random programs that allocate, free and run out of memory, on the device and in a model of CUDA's allocator.

After each step both have the same statistics."""

from __future__ import annotations

import dataclasses
import random
from contextlib import ExitStack

import torch
from cuda_allocator import MIB, Block, CudaAllocator, Settings

NAMES = {
    "reserved": "reserved_bytes.all.current",
    "reserved_peak": "reserved_bytes.all.peak",
    "allocated": "allocated_bytes.all.current",
    "allocated_peak": "allocated_bytes.all.peak",
    "allocations": "allocation.all.current",
    "active": "active_bytes.all.current",
    "segments": "segment.all.current",
    "inactive_split": "inactive_split.all.current",
    "inactive_split_bytes": "inactive_split_bytes.all.current",
    "oversize_allocations": "oversize_allocations.current",
    "oversize_segments": "oversize_segments.current",
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
    "syncs": "num_sync_all_streams",
    "maps": "num_device_alloc",
    "unmaps": "num_device_free",
}


class Program:
    def __init__(self, seed: int, settings: Settings, *, toggles: bool) -> None:
        self.random = random.Random(seed)
        self.toggles = toggles  # expandable_segments
        if toggles:
            torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{settings.expandable}")
        self.streams = [torch.openreg.current_stream(), torch.openreg.Stream(), torch.openreg.Stream()]
        fraction = self.random.choice([1.0, 0.75, 0.5])
        torch.openreg.set_per_process_memory_fraction(fraction)
        self.model = CudaAllocator(torch.openreg.mem_get_info()[1], settings, fraction)
        self.held: list[tuple[torch.Tensor, Block]] = []
        self.pools: list[tuple[int, torch.openreg.MemPool]] = []
        for number in range(1, self.random.choice([1, 1, 3])):
            options = {"use_on_oom": self.random.random() < 0.5, "no_split": self.random.random() < 0.5}
            self.pools.append((number, torch.openreg.MemPool(**options)))
            if options["use_on_oom"]:
                self.model.spare_pools.append(number)
            if options["no_split"]:
                self.model.whole_pools.add(number)

    def run(self, steps: int) -> None:
        steps_of = {self.allocate: 60, self.free: 37, self.empty_cache: 2, self.toggle: 1}
        for step in self.random.choices(list(steps_of), list(steps_of.values()), k=steps):
            step()
            self.compare(step.__name__)
        while self.held:
            self.free()
        while self.pools:
            self.model.end_pool(self.pools.pop()[0])
        self.empty_cache()
        self.compare("the end")
        assert self.model.stats["reserved"] == 0

    def size(self) -> int:
        most = self.random.choices([4096, MIB, 10 * MIB, 60 * MIB], [4, 3, 3, 2])[0]
        return self.random.randint(1, most) if self.random.random() < 0.7 else most

    def allocate(self) -> None:
        size, stream = self.size(), self.random.choice([0, 0, 0, 1, 2])
        number, pool = self.random.choice(self.pools) if self.pools and self.random.random() < 0.3 else (0, None)
        with ExitStack() as stack:
            stack.enter_context(torch.openreg.stream(self.streams[stream]))
            if pool is not None:
                stack.enter_context(torch.openreg.use_mem_pool(pool))
            try:
                tensor = torch.empty(size, dtype=torch.uint8, device="openreg")
            except torch.OutOfMemoryError:
                tensor = None
        block = self.model.malloc(size, stream, number)
        assert (tensor is None) == (block is None), f"{size} bytes: {self.model.stats}"
        if tensor is None or block is None:
            return
        if self.random.random() < 0.1:
            other = self.random.choice([0, 1, 2])
            tensor.record_stream(self.streams[other])
            self.model.record_stream(block, other)
        self.held.append((tensor, block))

    def free(self) -> None:
        if not self.held:
            return
        tensor, block = self.held.pop(self.random.randrange(len(self.held)))
        del tensor
        torch.openreg.synchronize()
        self.model.free(block)

    def empty_cache(self) -> None:
        torch.openreg.empty_cache()
        self.model.empty_cache()

    def toggle(self) -> None:
        if not self.toggles:
            return
        expandable = not self.model.settings.expandable
        torch._C._accelerator_setAllocatorSettings(f"expandable_segments:{expandable}")
        self.model.settings = dataclasses.replace(self.model.settings, expandable=expandable)

    def compare(self, step: str) -> None:
        stats = torch.openreg.memory_stats()
        ours = {name: stats[key] for name, key in NAMES.items()}
        differences = {name: (ours[name], cuda) for name, cuda in self.model.stats.items() if ours[name] != cuda}
        assert not differences, f"after {step}, (here, CUDA): {differences}"


def run(first_seed: int, programs: int, settings: Settings, *, toggles: bool = False) -> dict[str, int]:
    """Returns how often allocations had to be repeated, and failed, in all programs."""
    total = dict.fromkeys(["retries", "ooms"], 0)
    for seed in range(first_seed, first_seed + programs):
        torch.openreg.reset_accumulated_memory_stats()
        torch.openreg.reset_peak_memory_stats()
        program = Program(seed, settings, toggles=toggles)
        try:
            program.run(steps=300)
        except AssertionError as e:
            raise AssertionError(f"program {seed}: {e}") from None
        for name in total:
            total[name] += program.model.stats[name]
    return total
