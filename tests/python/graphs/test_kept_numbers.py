"""Replayed operators keep numbers, which are the same in each run, and read tensors again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

Tensor = torch.Tensor
# x: float32; n: int32, y: float64; one: float32 without dimensions
EXPRESSIONS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "an integer": lambda x, n, y, one: x + 1,
    "from the left": lambda x, n, y, one: 3 - x,
    "a float": lambda x, n, y, one: x * 2.5,
    "a float with integers": lambda x, n, y, one: n * 2.5,
    "in place": lambda x, n, y, one: x.clone().add_(1).mul_(3),
    "alpha": lambda x, n, y, one: torch.add(x, x, alpha=2),
    "a comparison": lambda x, n, y, one: x > 2,
    "a comparison of integers with a float": lambda x, n, y, one: n > 2.5,
    "division": lambda x, n, y, one: n / 3,
    "a power": lambda x, n, y, one: x**2,
    "a number to a power": lambda x, n, y, one: 2**x,
    "clamp": lambda x, n, y, one: x.clamp(1, 4),
    "where": lambda x, n, y, one: torch.where(x > 2, x, 7.0),
    "two dtypes": lambda x, n, y, one: x + n,
    "two dtypes, compared": lambda x, n, y, one: n < y,
    "a tensor without dimensions": lambda x, n, y, one: x + one,
    "such a tensor of another dtype": lambda x, n, y, one: y + one.to(torch.int32),
    "an element": lambda x, n, y, one: x * x[0],
    "an element of another dtype": lambda x, n, y, one: y * n[0],
    "a CPU tensor": lambda x, n, y, one: x + torch.tensor(5, dtype=torch.int64),
    "half precision": lambda x, n, y, one: x.bfloat16() + 1,
    "a complex number": lambda x, n, y, one: x * 2j,
    "glu": lambda x, n, y, one: torch.nn.functional.glu(x * 2),
    "lerp": lambda x, n, y, one: torch.lerp(x, x * 2, 0.25),
    "addcmul": lambda x, n, y, one: torch.addcmul(x, x, x, value=0.5),
}


def inputs(device: str, seed: int) -> list[Tensor]:
    torch.manual_seed(seed)
    values = [
        torch.rand(6) * 5,
        torch.randint(1, 9, (6,), dtype=torch.int32),
        torch.rand(6).double() * 5,
        torch.rand(()),
    ]
    return [value.to(device) for value in values]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_replays_follow_the_tensors(name):
    work = EXPRESSIONS[name]
    static = inputs("openreg", 0)
    work(*static)
    torch.accelerator.synchronize()
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        results = [work(*static) for _ in range(3)]
    for seed in range(1, 6):  # the first run prepares, the second one keeps, the third one proves
        given = inputs("cpu", seed)
        for tensor, value in zip(static, given, strict=True):
            tensor.copy_(value)
        graph.replay()
        for result in results:
            torch.testing.assert_close(result.cpu(), work(*given))
