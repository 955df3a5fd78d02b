"""The cases of compare.py."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext

import networks
import torch
from models import (
    Decoder,
    Transformer,
    cnn,
    cnn_step,
    labels_for,
    mlp_adamw_step,
    mlp_step,
    trainer,
    transformer_step,
)
from rounds import Case, Groups, Step, steady, steady_and_host, synchronize
from torch import nn

STREAMS = 8


def adds(device: str, numel: int, count: int) -> Step:
    a, b = torch.ones(numel, device=device), torch.ones(numel, device=device)

    def step() -> None:
        c = a
        for _ in range(count):
            c = c + b

    return step


def product(device: str, n: int) -> Step:
    a, b = torch.randn(n, n).to(device), torch.randn(n, n).to(device)
    return lambda: a @ b


def layer_gradients(device: str) -> Step:
    """A large layer, forward and backward: the host launches for a moment, and then waits."""
    layer, x = nn.Linear(256, 1024).to(device), torch.randn(1024, 256).to(device).requires_grad_()
    gradient = torch.randn(1024, 1024).to(device)
    return lambda: torch.autograd.grad(layer(x), (x, *layer.parameters()), gradient)


def product_before(device: str, n: int, milliseconds: float) -> Step:
    """Launches a product, runs unrelated Python for `milliseconds`, and waits."""
    multiply = product(device, n)

    def step() -> None:
        multiply()
        end = time.perf_counter() + milliseconds / 1e3
        while time.perf_counter() < end:
            pass
        synchronize(device)

    return step


def conv2d(device: str) -> Step:
    layer = nn.Conv2d(32, 64, 3, padding=1).to(device).requires_grad_(False)
    x = torch.randn(16, 32, 56, 56).to(device)
    return lambda: layer(x)


def layer_norm(device: str) -> Step:
    layer = nn.LayerNorm(1024).to(device).requires_grad_(False)
    x = torch.randn(4096, 1024).to(device)
    return lambda: layer(x)


def softmax(device: str) -> Step:
    x = torch.randn(4096, 4096).to(device)
    return lambda: torch.softmax(x, -1)


def attention(device: str) -> Step:
    q, k, v = (torch.randn(4, 8, 256, 64).to(device) for _ in range(3))
    return lambda: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def item(device: str) -> Step:
    x = torch.ones((), device=device)
    return lambda: x.item()


def empty_and_free(device: str) -> Step:
    return lambda: torch.empty(256, device=device)


def randn(device: str) -> Step:
    return lambda: torch.randn(1 << 20, device=device)


def randperm(device: str) -> Step:
    return lambda: torch.randperm(1 << 20, device=device)


def multinomial(device: str) -> Step:
    weights = torch.rand(1000).to(device)
    return lambda: torch.multinomial(weights, 1 << 20, replacement=True)


def copy(source: str, target: str) -> Step:
    a, b = torch.ones(16 << 20, device=source), torch.empty(16 << 20, device=target)
    return lambda: b.copy_(a)


def inference(device: str) -> Step:
    """One sample through eight small layers; the host waits for the result."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers).to(device)
    x = torch.randn(1, 64).to(device)

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step


def generation(device: str, each_read: bool = False) -> Step:
    model = Decoder().to(device)
    return lambda: model.generate(200, each_read=each_read)


def replayed(make: Callable[[str], Step]) -> Callable[[str], Step]:
    """On the device, replays the step's graph; on the CPU, which has no graphs, runs the step itself."""

    def of(device: str) -> Step:
        step = make(device)
        if device == "cpu":
            return step
        with torch.openreg.stream(torch.openreg.Stream()):
            for _ in range(3):
                step()
        synchronize(device)
        graph = torch.openreg.CUDAGraph()
        with torch.openreg.graph(graph):
            step()
        return graph.replay

    return of


def products_on_streams(device: str) -> Step:
    """On the CPU, which has no streams, one after the other."""
    multiplications = [product(device, 512) for _ in range(STREAMS)]
    streams = [nullcontext() if device == "cpu" else torch.Stream(device=device) for _ in multiplications]
    synchronize(device)

    def step() -> None:
        for _ in range(20):
            for stream, multiply in zip(streams, multiplications, strict=True):
                with stream:
                    multiply()

    return step


# --- New shapes: the first and the second time of their use in a process ---


def passes(device: str, train: Callable[..., None], warm_up: torch.Tensor, inputs: list[torch.Tensor]) -> list[float]:
    """The seconds for a sample in the first pass and in the second.

    Before the first pass the process uses another shape, `warm_up`, so that one-time work of libraries (threads,
    tables, the first call of an operator) is not counted, but work for each shape is. A pass ends with a wait.
    """
    first, *samples = [(x.to(device), labels_for(x).to(device)) for x in (warm_up, *inputs)]
    train(*first)
    synchronize(device)
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        for sample in samples:
            train(*sample)
        synchronize(device)
        times.append((time.perf_counter() - begin) / len(samples))
    return times


def new_images(device: str, _seconds: float) -> list[float]:
    train = trainer(cnn(), torch.optim.SGD, device, lr=0.01)
    return passes(device, train, torch.randn(8, 3, 80, 80), [torch.randn(8, 3, n, n) for n in range(24, 64)])


def new_sequences(device: str, _seconds: float) -> list[float]:
    train = trainer(Transformer(), torch.optim.AdamW, device)
    return passes(device, train, torch.randn(8, 80, 128), [torch.randn(8, n, 128) for n in range(5, 65)])


def new_tokens(device: str, _seconds: float) -> list[float]:
    model = Decoder().to(device)
    model.generate(1, before=300)
    begin = time.perf_counter()
    model.generate(200)
    return [time.perf_counter() - begin]


def groups() -> Groups:
    return {
        "element-wise": [
            steady_and_host("chain of 200 adds of 16", lambda device: adds(device, 16, 200), 200),
            steady("add of 16k", lambda device: adds(device, 16 << 10, 200), operations=200),
            steady("add of 256k", lambda device: adds(device, 256 << 10, 50), operations=50),
            steady("add of 16M", lambda device: adds(device, 16 << 20, 10), operations=10),
        ],
        "products": [
            steady("product of 32x32", lambda device: product(device, 32), 100),
            steady("product of 1024x1024", lambda device: product(device, 1024), 2),
            steady("product of 2048x2048", lambda device: product(device, 2048)),
        ],
        "layers": [
            steady("linear 1024x256x1024 and its gradients", layer_gradients),
            steady("conv2d 16x32x56x56", conv2d, 2),
            steady("layer_norm 4096x1024", layer_norm, 2),
            steady("softmax 4096x4096", softmax),
            steady("attention 4x8x256x64, causal", attention, 5),
        ],
        "memory": [
            steady("item", item, 1000),
            steady("empty and free of 1 KB", empty_and_free, 1000),
            steady("copy of 64 MB", lambda device: copy(device, device), 2),
            steady("copy of 64 MB to the host", lambda device: copy(device, "cpu")),
            steady("copy of 64 MB from the host", lambda device: copy("cpu", device)),
        ],
        "random numbers": [
            steady("randn of 1M", randn, 5),
            steady("randperm of 1M", randperm, 2),
            steady("multinomial, 1M draws", multinomial, 2),
        ],
        "training step": [
            steady("MLP, batch 32, SGD", mlp_step, 10),
            steady("MLP, batch 256, AdamW", mlp_adamw_step, 5),
            steady("CNN, batch 32, SGD", cnn_step, 2),
            steady("transformer, 2 layers, AdamW", transformer_step),
        ],
        "networks, training step": networks.cases(),
        "inference": [
            steady("8 small layers, batch 1", inference),
            steady("200 tokens, warm", generation),
            steady("200 tokens, each read, warm", lambda device: generation(device, each_read=True)),
        ],
        "graphs, against the CPU's operators": [
            steady("chain of 200 adds of 16, replayed", replayed(lambda device: adds(device, 16, 200)), 20, 200),
            steady("MLP step, batch 32, SGD, replayed", replayed(mlp_step), 10),
            steady("CNN step, batch 32, SGD, replayed", replayed(cnn_step), 2),
            steady("8 small layers, batch 1, replayed", replayed(inference), 20),
            steady("8 small layers, batch 1, replayed and awaited", replayed(inference)),
        ],
        "overlap with Python": [
            steady("product of 2048, 5 ms of Python", lambda device: product_before(device, 2048, 5)),
            steady("product of 2048, 20 ms of Python", lambda device: product_before(device, 2048, 20)),
        ],
        "streams": [steady("products of 512 on 8 streams", products_on_streams, operations=20 * STREAMS)],
        # One case in each group, so that each case has a separate process.
        "new image sizes": [Case(("40 image sizes, first time", "40 image sizes, second time"), new_images)],
        "new lengths": [Case(("60 lengths, first time", "60 lengths, second time"), new_sequences)],
        "new tokens": [Case(("200 tokens, first time",), new_tokens)],
    }
