"""Philox 4x32-10 and CUDA's way to share out its numbers, the plain and slow way, and a test of distributions."""

from __future__ import annotations

import math

import torch

GRID_THREADS = 132 * 2048


def philox(seed: int, offset: int, subsequence: torch.Tensor) -> torch.Tensor:
    """Philox 4x32-10, the plain way: the numbers of the call at `offset`, [subsequences, 4], as int64."""
    low = 0xFFFFFFFF
    call = offset // 4
    c = [torch.full_like(subsequence, call & low), torch.full_like(subsequence, call >> 32), subsequence & low]
    c.append(subsequence >> 32)
    k = [seed & low, seed >> 32]

    def multiply(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # 64 bits are one too many for int64: by halves.
        b0, b1 = b & 0xFFFF, b >> 16
        lower = a * b0
        upper = a * b1 + (lower >> 16)
        return upper >> 16, ((upper & 0xFFFF) << 16) | (lower & 0xFFFF)

    for _ in range(10):
        high0, low0 = multiply(0xD2511F53, c[0])
        high1, low1 = multiply(0xCD9E8D57, c[2])
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) & low, (k[1] + 0xBB67AE85) & low]
    return torch.stack(c, 1)


def reference_bits(seed: int, offset: int, elements: int) -> tuple[torch.Tensor, int]:
    """32 random bits for each element, as CUDA's grid of 256-thread blocks shares them out, and the next offset."""
    threads = min(256 * math.ceil(elements / 256), GRID_THREADS)
    rounds = math.ceil(elements / (4 * threads))
    parts = []
    for r in range(rounds):
        parts.append(philox(seed, offset + 4 * r, torch.arange(threads)).t().reshape(-1))
    return torch.cat(parts)[:elements], offset + 4 * rounds


def kolmogorov_smirnov(x: torch.Tensor, cdf: torch.Tensor) -> float:
    """The test's statistic times the root of the number of samples: above 1.95 once in 1000 times."""
    n = x.numel()
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    return max((steps[1:] - cdf).max().item(), (cdf - steps[:-1]).max().item()) * math.sqrt(n)
