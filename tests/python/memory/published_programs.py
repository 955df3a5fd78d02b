"""Peaks of GPU memory that Liger-Kernel's benchmarks have published for plain torch, with their programs.

A row is a GPU, a program, and MiB of torch.cuda.max_memory_allocated(). Above 16 GiB the published numbers are rounded.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

MIB = 1 << 20
# Workspaces of cuBLAS stay from one program to the next.
WITHOUT_WORKSPACES = ("layer_norm", "rms_norm", "cross_entropy")

PEAKS: dict[str, dict[str, dict[int, float]]] = {
    "a100": {
        "layer_norm": {1024: 80.0625, 2048: 160.09375, 4096: 320.15625, 8192: 640.28125, 16384: 1280.53125},
        "rms_norm": {
            1024: 80.01953125,
            2048: 160.03125,
            4096: 320.0546875,
            8192: 640.1015625,
            16384: 1280.1953125,
            32768: 2560.3828125,
        },
        "cross_entropy": {
            4096: 1280.1259765625,
            8192: 2560.1259765625,
            16384: 5120.1259765625,
            32768: 10240.1259765625,
            65536: 20480.125,
            131072: 40960.125,
        },
        "mlp_4096": {1024: 1294.25, 2048: 1992.25, 4096: 3452.25, 8192: 6372.25},
    },
    "rtx4090": {
        "mlp_2048": {1024: 264.25, 2048: 400.25, 4096: 688.25, 8192: 1264.25, 16384: 2416.25},
        "mlp_2048_forward": {1024: 144.25, 2048: 224.25, 4096: 384.25, 8192: 704.25, 16384: 1344.25},
    },
}


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class MLP(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


def _norm(kind: Callable[[int], nn.Module], rows: int, width: int, dtype: torch.dtype) -> Callable[[], object]:
    used, _other = kind(width), kind(width)
    x = torch.randn(rows, width, dtype=dtype)
    gradient = torch.randn_like(x)
    x.requires_grad_()

    def step(_unused: object = _other) -> None:
        y = used(x)
        y.backward(gradient, retain_graph=True)

    return step


def _mlp(batch: int, length: int, width: int, inner: int, backward: bool = True) -> Callable[[], object]:
    model = MLP(width, inner).bfloat16()
    x = torch.randn(batch, length, width, dtype=torch.bfloat16, requires_grad=True)

    def full() -> None:
        y = model(x)
        y.backward(torch.randn_like(y), retain_graph=True)

    if not backward:
        # Both workspaces are there: the benchmark has run backward before.
        small = torch.ones(2, 2, requires_grad=True)
        (small @ small).sum().backward()
    return full if backward else lambda: model(x)


def _cross_entropy(vocabulary: int) -> Callable[[], object]:
    x = torch.randn(16384, vocabulary, requires_grad=True)
    target = torch.randint(vocabulary, (16384, 1)).squeeze(1)
    return lambda: nn.functional.cross_entropy(x, target).backward()


PROGRAMS: dict[str, Callable[[int], Callable[[], object]]] = {
    "layer_norm": lambda n: _norm(nn.LayerNorm, 4096, n, torch.float32),
    "rms_norm": lambda n: _norm(RMSNorm, 2048, n, torch.bfloat16),
    "cross_entropy": _cross_entropy,
    "mlp_4096": lambda n: _mlp(4, n, 4096, 11008),
    "mlp_2048": lambda n: _mlp(2, n, 2048, 4096),
    "mlp_2048_forward": lambda n: _mlp(2, n, 2048, 4096, backward=False),
}


def median_peak(program: Callable[[], object], module: Any) -> float:
    """MiB, of ten runs."""
    peaks = []
    for _ in range(10):
        module.reset_peak_memory_stats()
        program()
        module.synchronize()
        peaks.append(module.max_memory_allocated() / MIB)
    return sorted(peaks)[5]


def measure(gpu: str, device: str, clear_workspaces: Callable[[], object]) -> dict[str, float]:
    module = getattr(torch, device)
    found = {}
    for name, sizes in PEAKS[gpu].items():
        for size in sizes:
            if name in WITHOUT_WORKSPACES:
                clear_workspaces()
            with torch.device(device):
                found[f"{name} {size}"] = median_peak(PROGRAMS[name](size), module)
            gc.collect()
            module.empty_cache()
    return found
