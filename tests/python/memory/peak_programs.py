"""Programs whose memory must not depend on whether the device computes: each prints its figures as JSON.

python peak_programs.py trainings|random|modules [NUMBER of random programs]
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

DEVICE = os.environ.get("TEST_DEVICE", "openreg")
MODULE = torch.get_device_module(DEVICE)
# Not the reserved bytes: autograd's thread frees its last tensors while the program goes on, so what lies beside what
# depends on time, as it does on a GPU.
SHARE = ("allocated_bytes.all.peak", "requested_bytes.all.peak", "active_bytes.all.peak")
COUNTS = ("allocation.all.allocated", "num_alloc_retries", "num_ooms")


def figures(program: Callable[[], object]) -> list[int]:
    """The figures of a program: peaks in bytes above what was there before, and counts of the allocator."""
    gc.collect()
    MODULE.synchronize()
    MODULE.empty_cache()
    before = dict.fromkeys(SHARE + COUNTS, 0) | MODULE.memory_stats()
    MODULE.reset_peak_memory_stats()
    program()
    MODULE.synchronize()
    after = MODULE.memory_stats()
    peaks = [after[name] - before.get(name.replace("peak", "current"), 0) for name in SHARE]
    return peaks + [after[name] - before[name] for name in COUNTS]


# --- Trainings ---


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Callable[[nn.Module], torch.Tensor],
    scaler: torch.amp.GradScaler | None = None,
) -> Callable[[], None]:
    """Three steps, with a clipped gradient."""

    def program() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            value = loss(model)
            if scaler is None:
                value.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            else:
                scaler.scale(value).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
            value.item()

    return program


def images(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).pin_memory().to(DEVICE, non_blocking=True)


def words(*shape: int, most: int = 1000) -> torch.Tensor:
    return torch.randint(most, shape).to(DEVICE)


def mlp() -> Callable[[], None]:
    model = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.LayerNorm(2048), nn.Linear(2048, 512)).to(DEVICE)
    return train(model, torch.optim.AdamW(model.parameters()), lambda m: m(images(64, 512)).square().mean())


def convolutions() -> Callable[[], None]:
    def block(i: int, o: int, stride: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

    model = nn.Sequential(
        block(3, 16, 1), block(16, 32, 2), nn.MaxPool2d(2), block(32, 64, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).to(DEVICE)
    loss = lambda m: F.cross_entropy(m(images(8, 3, 32, 32)), words(8, most=64))  # noqa: E731
    return train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), loss)


def recurrent(kind: type[nn.RNNBase], **options: bool) -> Callable[[], None]:
    model = kind(64, 128, 2, batch_first=True, **options).to(DEVICE)
    return train(model, torch.optim.Adam(model.parameters()), lambda m: m(images(8, 32, 64))[0].square().mean())


class Block(nn.Module):
    """Attention written out, as in GPT-2, and a feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5
        mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = self.dropout(scores.masked_fill(~mask, float("-inf")).softmax(-1))
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Language(nn.Module):
    def __init__(self, checkpoint: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        self.blocks = nn.ModuleList(Block(128, 4) for _ in range(3))
        self.head = nn.Linear(128, 1000, bias=False)
        self.checkpoint = checkpoint

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if self.checkpoint else block(x)
        return self.head(x)


def language(dtype: torch.dtype | None = None, checkpoint: bool = False, **options: bool) -> Callable[[], None]:
    model = Language(checkpoint).to(DEVICE)

    def loss(m: nn.Module) -> torch.Tensor:
        tokens = words(2, 96)
        with torch.autocast(DEVICE, dtype or torch.bfloat16, enabled=dtype is not None):
            return F.cross_entropy(m(tokens).flatten(0, 1), tokens.flatten())

    scaler = torch.amp.GradScaler(DEVICE) if dtype == torch.float16 else None
    return train(model, torch.optim.AdamW(model.parameters(), **options), loss, scaler)


def generator() -> Callable[[], None]:
    model = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 2, 1), nn.GroupNorm(4, 32), nn.SiLU(), nn.Upsample(scale_factor=2),
        nn.Conv2d(32, 3, 3, padding=1), nn.Tanh(),
    ).to(DEVICE)  # fmt: skip
    return train(model, torch.optim.RMSprop(model.parameters()), lambda m: m(images(4, 16, 8, 8)).abs().mean())


def recommendations() -> Callable[[], None]:
    model = nn.ModuleDict({"bag": nn.EmbeddingBag(500, 32), "tower": nn.Sequential(nn.Linear(32, 64), nn.ReLU())})
    model = model.to(DEVICE)

    def loss(m: nn.Module) -> torch.Tensor:
        return m["tower"](m["bag"](words(16, 10, most=500))).logsumexp(-1).mean()

    return train(model, torch.optim.Adagrad(model.parameters()), loss)


def captured() -> Callable[[], None]:
    model = nn.Linear(256, 256).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 256, device=DEVICE)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    def program() -> None:
        side = MODULE.Stream()
        side.wait_stream(MODULE.current_stream())
        with MODULE.stream(side):
            step()
        MODULE.current_stream().wait_stream(side)
        graph = MODULE.CUDAGraph()
        with MODULE.graph(graph):
            loss = step()
        for _ in range(3):
            graph.replay()
            loss.item()

    return program


TRAININGS: dict[str, Callable[[], Callable[[], None]]] = {
    "mlp": mlp,
    "convolutions": convolutions,
    "rnn": lambda: recurrent(nn.RNN),
    "lstm": lambda: recurrent(nn.LSTM),
    "gru in both directions": lambda: recurrent(nn.GRU, bidirectional=True),
    "language": language,
    "language, bfloat16, fused": lambda: language(torch.bfloat16, fused=True),
    "language, float16, scaled": lambda: language(torch.float16),
    "language, checkpointed": lambda: language(checkpoint=True),
    "language, for loops": lambda: language(foreach=False),
    "generator": generator,
    "recommendations": recommendations,
    "captured": captured,
}


def trainings() -> Iterator[tuple[str, list[int]]]:
    for name, make in TRAININGS.items():
        torch.manual_seed(0)
        yield name, figures(lambda make=make: make()())


# --- Random programs ---

UNARY = [torch.relu, torch.exp, torch.sigmoid, torch.abs, torch.neg, torch.rsqrt, lambda x: x.softmax(-1)]
UNARY += [lambda x: x.double(), lambda x: x.bfloat16().float(), lambda x: x.t().contiguous(), torch.clone]
UNARY += [lambda x: x.cumsum(0), lambda x: x.sort(-1).values, lambda x: x.roll(1, 0), lambda x: F.dropout(x, 0.5)]
UNARY += [lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x.flip(0), lambda x: x.topk(min(3, x.shape[-1])).values]
BINARY = [torch.add, torch.mul, torch.maximum, lambda x, y: torch.cat([x, y]), lambda x, y: x @ y.mT]
BINARY += [lambda x, y: torch.where(x > 0, x, y), lambda x, y: torch.addcmul(x, x, y)]
IN_PLACE = [lambda x: x.mul_(2), lambda x: x.zero_(), lambda x: x[::2].add_(1), lambda x: x.clamp_(0, 1)]


def random_program(seed: int) -> Callable[[], None]:
    """Some operators on some tensors, of which a part is freed meanwhile; sometimes with gradients or streams."""
    choose = random.Random(seed)

    def program() -> None:
        width = choose.choice([1, 7, 64, 300])
        grad = choose.random() < 0.5
        # With several streams, autograd's memory is reused once their work is done, which depends on time.
        streams = [MODULE.current_stream(), MODULE.current_stream() if grad else MODULE.Stream()]

        def new() -> torch.Tensor:
            x = torch.randn(choose.choice([1, 33, 256, 1500]), width, device=DEVICE)
            return x.requires_grad_(grad and choose.random() < 0.5)

        tensors = [new(), new()]
        for _ in range(30):
            stream = choose.choice(streams) if choose.random() < 0.2 else streams[0]
            stream.wait_stream(MODULE.current_stream())
            with MODULE.stream(stream):
                try:
                    kind = choose.random()
                    if kind < 0.1:
                        tensors.append(new())
                    elif kind < 0.6:
                        tensors.append(choose.choice(UNARY)(choose.choice(tensors)))
                    elif kind < 0.9:
                        x = choose.choice(tensors)
                        same = [each for each in tensors if each.shape[-1] == x.shape[-1] and each.dtype == x.dtype]
                        tensors.append(choose.choice(BINARY)(x, choose.choice(same)))
                    else:
                        with torch.no_grad():
                            choose.choice(IN_PLACE)(choose.choice(tensors).detach().clone())
                except RuntimeError:  # the shapes do not match: the same in both modes
                    pass
            streams[0].wait_stream(stream)
            while len(tensors) > 6:
                del tensors[choose.randrange(len(tensors))]
        if grad and any(each.requires_grad for each in tensors):
            sum(each.double().sum() for each in tensors if each.requires_grad).backward()

    return program


def random_programs(number: int) -> Iterator[tuple[str, list[int]]]:
    for seed in range(number):
        torch.manual_seed(seed)
        yield f"seed {seed}", figures(random_program(seed))


# --- PyTorch's module database ---


def to_device(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.to(DEVICE)
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_device, value))
    return {name: to_device(each) for name, each in value.items()} if isinstance(value, dict) else value


def gradients(result: object) -> None:
    outputs = [result] if isinstance(result, torch.Tensor) else result if isinstance(result, (list, tuple)) else []
    sums = [each.sum() for each in outputs if isinstance(each, torch.Tensor) and each.requires_grad]
    if sums:
        sum(sums).backward()


def use(info: Any, sample: Any, failures: list[str]) -> None:
    """Makes a module, and runs it forward and backward."""
    made, call = sample.constructor_input, sample.forward_input
    try:
        module = info.module_cls(*made.args, **made.kwargs).to(DEVICE)
        if call is not None:
            gradients(module(*map(to_device, call.args), **to_device(call.kwargs)))
    except (RuntimeError, ValueError, TypeError) as error:
        failures.append(str(error).splitlines()[0])


def modules() -> Iterator[tuple[str, list[int]]]:
    from torch.testing._internal.common_modules import module_db

    gc.freeze()
    for info in module_db:
        for number, sample in enumerate(
            info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=True)
        ):
            torch.manual_seed(0)

            failures: list[str] = []
            result = figures(lambda info=info, sample=sample, failures=failures: use(info, sample, failures))
            yield f"{info.name} {number}", result + failures


if __name__ == "__main__":
    from torch_openreg import _C

    _C.use_cuda_segments(True)  # as a device that does not compute
    _C.reproduce_cuda_allocations(False)  # which the CPU's kernels do not have
    kinds = {"trainings": trainings, "random": lambda: random_programs(int(sys.argv[2])), "modules": modules}
    for name, result in kinds[sys.argv[1]]():
        print(json.dumps([name, result]), flush=True)
