"""Does at random what programs do with device memory, and compares the device with memory_model.py after each step.

By hand: `TORCH_OPENREG_MEMORY=64MiB python tests/python/memory/memory_soak.py --seconds 60 --seed 1 [--threads 4]`.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable

import torch
from memory_model import BOUNDED, Addresses, Block, Statistics, nothing_is_left

DEVICES = 2
MATRIX = 192  # what keeps streams at work multiplies matrices of this size
LIVE = 240  # blocks of all workers, about


def mapped(device: int) -> str:
    """Where the device has memory."""
    segments = [s for s in torch.openreg.memory_snapshot() if s["device"] == device]
    return ", ".join(
        f"{s['address']:#x}+{s['total_size'] >> 20}MiB" for s in sorted(segments, key=lambda s: s["address"])
    )


class Memory:
    """The model of all devices, and what the workers share."""

    def __init__(self, workers: int):
        self.lock = threading.Lock()
        self.alone = workers == 1
        self.live = LIVE // workers
        self.addresses = Addresses()
        self.statistics = [Statistics() for _ in range(DEVICES)]
        self.exchange: list[Block] = []  # from any worker to any other
        self.deadline = 0.0
        self.out_of_memory = 0  # ever; the statistics are reset
        self.failures: list[BaseException] = []

    def check(self) -> None:
        for device, statistics in enumerate(self.statistics):
            statistics.check(device)


class Worker:
    """One thread's steps."""

    def __init__(self, memory: Memory, seed: int, streams: list[torch.openreg.Stream]):
        self.memory = memory
        self.random = random.Random(seed)
        self.streams = streams
        self.blocks: list[Block] = []
        self.log: deque[str] = deque(maxlen=30)
        self.steps = 0
        self.matrices = {stream: self.matrices_for(stream) for stream in streams}
        self.actions: dict[Callable[[], None], float] = {
            self.allocate: 30,
            self.free: 20,
            self.copy: 12,
            self.replace_while_in_use: 6,
            self.overwrite: 8,
            self.verify: 4,
            self.keep_a_stream_at_work: 4,
            self.synchronize: 1,
            self.empty_cache: 0.5,
            self.free_most: 0.1,
        }
        if memory.alone:
            self.actions |= {self.reset_peak: 0.5, self.reset_accumulated: 0.5}
        else:
            self.actions |= {self.put: 8, self.take: 8, self.churn: 4}

    # Blocks

    def new(
        self, make: Callable[[], torch.Tensor], size: int, value: int, stream: torch.openreg.Stream
    ) -> Block | None:
        """The block that `make` allocates for `stream`, or None where memory has run out. Not in `blocks` yet."""
        device = stream.device_index
        statistics = self.memory.statistics[device]
        tensor = self.attempt(make, stream)
        if self.memory.alone:
            final = tensor is not None or self.attempt(make, stream) is None
            assert final, f"memory ran out, and then there were {size} bytes"
            retries, statistics.retries = statistics.retries, torch.openreg.memory_stats(device)["num_alloc_retries"]
            assert 0 <= statistics.retries - retries <= (1 if tensor is not None else 2)
            if statistics.retries > retries:
                statistics.all_drained()
            if tensor is None:
                free, total = torch.openreg.mem_get_info(device)
                assert size > free, f"{free} bytes are free, but not for {size}: {mapped(device)}"
                assert statistics.retries > retries or size > total, "the cache was not given back"
        if tensor is None:
            return None
        block = Block(tensor, value, stream)
        assert (block.size, tensor.device.index) == (size, device)
        if size == 0:
            assert block.address == 0
            return block
        with self.memory.lock:
            self.memory.addresses.take(block.address, size)
            statistics.allocated(size)
        return block

    def attempt(self, make: Callable[[], torch.Tensor], stream: torch.openreg.Stream) -> torch.Tensor | None:
        try:
            with stream:
                return make()
        except torch.OutOfMemoryError:
            with self.memory.lock:
                self.memory.statistics[stream.device_index].out_of_memory += 1
                self.memory.out_of_memory += 1
            return None

    def churn(self) -> None:
        """Many small blocks one after the other, so that threads meet in the allocator."""
        stream, size = self.random.choice(self.streams), self.random.randint(1, 4096)
        done = 0
        with stream:
            for _ in range(200):
                try:
                    torch.empty(size, dtype=torch.uint8, device=f"openreg:{stream.device_index}")
                except torch.OutOfMemoryError:
                    break
                done += 1
        with self.memory.lock:
            statistics = self.memory.statistics[stream.device_index]
            statistics.out_of_memory += done < 200
            for _ in range(done):
                statistics.allocated(size)
                statistics.freed(size, pending=False)

    def drop(self, block: Block) -> None:
        if block.size:
            events = []
            for reader in block.readers:
                events.append(torch.openreg.Event())
                events[-1].record(reader)
            with self.memory.lock:  # before the memory can be another's
                self.memory.addresses.give(block.address, block.size, events)
                self.memory.statistics[block.stream.device_index].freed(block.size, pending=bool(events))
        del block.tensor

    def contents_are_intact(self, block: Block) -> None:
        with block.stream:
            host = block.tensor.cpu()
        words = host[: block.size // 8 * 8].view(torch.int64)  # eight times as quick
        word = int.from_bytes(bytes([block.value] * 8), "little", signed=True)
        intact = words.eq(word).all() and host[words.nbytes :].eq(block.value).all()
        assert intact, f"not all of {block.size} bytes at {block.address:#x} are {block.value}"

    def fill(self, block: Block, value: int) -> None:
        for reader in block.readers:
            block.stream.wait_stream(reader)
        block.value = value
        with block.stream:
            block.tensor.fill_(value)

    def empty(self, size: int, value: int, stream: torch.openreg.Stream) -> Block | None:
        device = f"openreg:{stream.device_index}"
        block = self.new(lambda: torch.empty(size, dtype=torch.uint8, device=device), size, value, stream)
        if block is not None:
            self.fill(block, value)
        return block

    def matrices_for(self, stream: torch.openreg.Stream) -> list[Block]:
        blocks = [self.empty(4 * MATRIX * MATRIX, 0, stream) for _ in range(2)]
        return [block for block in blocks if block is not None]

    # Steps

    def some_size(self) -> int:
        kind = self.random.random()
        if kind < 0.01:
            return 0
        if kind < 0.03:
            return self.random.randint(1, 100 << 20)
        if kind < 0.1:
            return 512 << self.random.randint(0, 14)
        return int(2 ** self.random.uniform(0, 24))

    def some_block(self) -> Block | None:
        return self.random.choice(self.blocks) if self.blocks else None

    def allocate(self) -> None:
        if len(self.blocks) >= self.memory.live:
            return self.free()
        block = self.empty(self.some_size(), self.random.randrange(256), self.random.choice(self.streams))
        if block is not None:
            self.blocks.append(block)

    def free(self) -> None:
        if block := self.some_block():
            self.blocks.remove(block)
            if self.random.random() < 0.2:
                self.contents_are_intact(block)
            self.drop(block)

    def copy(self) -> None:
        """To another block, for whichever stream: the source is used by a stream that it does not belong to."""
        source, stream = self.some_block(), self.random.choice(self.streams)
        if source is not None and len(self.blocks) < self.memory.live and (block := self.copied(source, stream)):
            self.blocks.append(block)

    def replace_while_in_use(self) -> None:
        """A block is freed that other streams are about to read, and at once another of its size is allocated."""
        if source := self.some_block():
            readers = self.random.sample(self.streams, self.random.randint(1, 3))
            for stream in readers:
                if copy := self.copied(source, stream):
                    self.blocks.append(copy)
            self.blocks.remove(source)
            self.drop(source)
            if len(readers) > 1:
                readers[0].synchronize()  # the others may be at it still
            if block := self.empty(source.size, self.random.randrange(256), source.stream):
                self.blocks.append(block)

    def copied(self, source: Block, stream: torch.openreg.Stream) -> Block | None:
        if stream.device_index != source.stream.device_index:

            def make() -> torch.Tensor:
                with source.stream:
                    return source.tensor.to(f"openreg:{stream.device_index}")

            return self.new(make, source.size, source.value, stream)  # both streams are ordered by the copy
        stream.wait_stream(source.stream)
        if self.random.random() < 0.5:
            self.multiply(stream)  # so that the copy comes late
        block = self.new(source.tensor.clone, source.size, source.value, stream)
        if block is not None and stream != source.stream:
            source.tensor.record_stream(stream)
            source.readers.add(stream)
        return block

    def overwrite(self) -> None:
        if block := self.some_block():
            self.fill(block, self.random.randrange(256))

    def verify(self) -> None:
        if block := self.some_block():
            self.contents_are_intact(block)

    def keep_a_stream_at_work(self) -> None:
        self.multiply(self.random.choice(self.streams))

    def multiply(self, stream: torch.openreg.Stream) -> None:
        if len(self.matrices[stream]) == 2:
            a, b = (block.tensor.view(torch.float32).view(MATRIX, MATRIX) for block in self.matrices[stream])
            with stream:
                for _ in range(self.random.randint(1, 5)):
                    torch.mm(a, a, out=b)

    def synchronize(self) -> None:
        if self.random.random() < 0.5:
            self.random.choice(self.streams).synchronize()
        else:
            torch.openreg.synchronize(self.random.randrange(DEVICES))

    def empty_cache(self) -> None:
        torch.openreg.empty_cache()
        if self.memory.alone:
            for statistics in self.memory.statistics:
                statistics.all_drained()

    def free_most(self) -> None:
        for _ in range(len(self.blocks) * 3 // 4):
            self.free()

    def reset_peak(self) -> None:
        device = self.random.randrange(DEVICES)
        torch.openreg.reset_peak_memory_stats(device)
        self.memory.statistics[device].peak_is_reset()

    def reset_accumulated(self) -> None:
        device = self.random.randrange(DEVICES)
        torch.openreg.reset_accumulated_memory_stats(device)
        stats = torch.openreg.memory_stats(device)
        active = {name: stats[f"{name}.all.current"] for name in BOUNDED}
        self.memory.statistics[device].accumulated_is_reset(active)

    def put(self) -> None:
        if (block := self.some_block()) and len(self.memory.exchange) < 20:
            self.blocks.remove(block)
            with self.memory.lock:
                self.memory.exchange.append(block)

    def take(self) -> None:
        """Another worker's block: copied on a stream of this one, and freed here."""
        with self.memory.lock:
            if not self.memory.exchange:
                return
            block = self.memory.exchange.pop(self.random.randrange(len(self.memory.exchange)))
        if copy := self.copied(block, self.random.choice(self.streams)):
            self.blocks.append(copy)
        self.drop(block)

    # The whole

    def run(self) -> None:
        choices, weights = list(self.actions), list(self.actions.values())
        try:
            while time.monotonic() < self.memory.deadline and not self.memory.failures:
                (action,) = self.random.choices(choices, weights)
                self.log.append(action.__name__)
                action()
                self.steps += 1
                if self.memory.alone:
                    self.memory.check()
            for block in [*self.blocks, *(block for pair in self.matrices.values() for block in pair)]:
                self.contents_are_intact(block)
                self.drop(block)
        except BaseException as failure:
            print(f"after {self.steps} steps, the last of them {', '.join(self.log)}:", file=sys.stderr)
            traceback.print_exc()
            self.memory.failures.append(failure)


def soak(seconds: float, seed: int, threads: int = 1) -> tuple[int, int]:
    """Returns how many steps there were, and how often memory ran out; raises the first failure."""
    memory = Memory(threads)
    workers = []
    for number in range(threads):
        streams = [torch.openreg.Stream(device) for device in range(DEVICES) for _ in range(2)]
        if threads == 1:
            streams += [torch.openreg.default_stream(device) for device in range(DEVICES)]
        workers.append(Worker(memory, seed * 1000 + number, streams))
    memory.deadline = time.monotonic() + seconds
    running = [threading.Thread(target=worker.run) for worker in workers]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if memory.failures:
        raise memory.failures[0]
    for block in memory.exchange:
        workers[0].contents_are_intact(block)
        workers[0].drop(block)
    nothing_is_left(memory.statistics)
    return sum(worker.steps for worker in workers), memory.out_of_memory


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 20))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    steps, out_of_memory = soak(**vars(options))
    print(steps, "steps, out of memory", out_of_memory, "times")
