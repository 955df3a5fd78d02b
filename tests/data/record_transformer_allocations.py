"""Records the device's allocations while a transformer is trained with batches of varying size.

    python tests/data/record_transformer_allocations.py tests/data/transformer_allocations.txt.gz

Each line of what it writes is an event, in order: `a <block> <bytes>`, an allocation, with the size rounded up as the
device does it, or `f <block>`, its free. All are of one device and one stream. The events are PyTorch's profiler's, and
are checked: each free is of a live block, and the bytes in use after each event are those that the allocator reported.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

OPTIONS = {
    "seed": 0,
    "steps": 30,
    "accumulate": 1,  # batches for a step
    "batch": 32,  # at most; at least 4
    "longest": 256,  # sequences; the shortest have 32
    "tokens": 4096,  # of a batch, at most
    "layers": 4,
    "width": 256,
    "vocabulary": 4000,
}


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attention = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(attention.transpose(1, 2).reshape(batch, length, width)), 0.1, self.training)
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, longest: int):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.layers = nn.Sequential(*(Layer(width, width // 64) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.layers(self.tokens(tokens) + self.positions(positions))))


def train(options: argparse.Namespace) -> None:
    """The usual loop: clipping, AdamW with a schedule, now and then an evaluation, the loss looked at each step."""
    sizes = random.Random(options.seed)
    torch.manual_seed(options.seed)
    model = Decoder(options.vocabulary, options.width, options.layers, options.longest).to("openreg")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step / 10))

    def loss_of_a_batch() -> torch.Tensor:
        length = sizes.randint(32, options.longest)
        batch = sizes.randint(4, min(options.batch, options.tokens // length))
        tokens = torch.randint(options.vocabulary, (batch, length + 1)).to("openreg")
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    for step in range(options.steps):
        for _ in range(options.accumulate):
            with torch.autocast("openreg", torch.bfloat16, enabled=options.autocast):
                loss = loss_of_a_batch() / options.accumulate
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        loss.item()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                sum(loss_of_a_batch() for _ in range(3)).item()
            model.train()


def recorded(options: argparse.Namespace) -> Iterator[dict]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        # One thread only: the order of events between threads would be the clock's.
        with torch.autograd.set_multithreading_enabled(False):
            train(options)
        gc.collect()
        torch.accelerator.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    device = torch._C._autograd.DeviceType.PrivateUse1
    memory = [e for e in events if e.get("name") == "[memory]" and e["args"]["Device Type"] == int(device)]
    assert len({event["tid"] for event in memory}) == 1, "more than one thread allocated"
    return (event["args"] for event in sorted(memory, key=lambda event: event["args"]["Ev Idx"]))


def lines(events: Iterator[dict]) -> Iterator[str]:
    live: dict[int, tuple[int, int]] = {}  # by address: number, bytes
    blocks = allocated = 0
    for event in events:
        address, size = event["Addr"], event["Bytes"]
        allocated += size
        assert allocated == event["Total Allocated"], "an event was lost"
        if size > 0:
            assert address not in live, "a live block was handed out"
            live[address] = blocks, size
            yield f"a {blocks} {size}\n"
            blocks += 1
        else:
            block, of_its_allocation = live.pop(address)
            assert size == -of_its_allocation, "a block changed its size"
            yield f"f {block}\n"
    assert not live, "blocks were not freed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    for option, default in OPTIONS.items():
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--autocast", action="store_true")
    options = parser.parse_args()
    text = "".join(lines(recorded(options)))
    options.output.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
