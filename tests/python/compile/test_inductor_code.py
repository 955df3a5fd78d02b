"""Inductor writes for the device the C++ that it writes for the CPU, so what is quick and exact there is so here."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code
from torch.testing import assert_close

DEVICE = "openreg"


@pytest.fixture(autouse=True)
def _nothing_is_cached():
    """Nothing of earlier runs, whose code may be that of another version of a test."""
    with inductor_config.patch(fx_graph_cache=False), functorch_config.patch(enable_autograd_cache=False):
        yield


class Images(nn.Module):
    """As the networks of timm begin: convolutions of several kinds, normalisations, pools, a gate."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width)
        self.conv, self.groups = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.GroupNorm(4, width)
        self.depthwise, self.pointwise = nn.Conv2d(width, width, 3, 1, 1, groups=width), nn.Conv2d(width, width, 1)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.norm(self.stem(x)).relu(), 3, 2, 1)
        x = (self.groups(self.conv(x)) + x).relu()
        x = F.silu(self.pointwise(self.depthwise(x)))
        return self.head((x * x.mean((2, 3), keepdim=True).sigmoid()).mean((2, 3)))


class Sentences(nn.Module):
    """A layer of a transformer as Hugging Face writes it."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape

        def split(y: torch.Tensor) -> torch.Tensor:
            return y.view(batch, length, self.heads, -1).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = self.first(x + self.out(seen))
        return self.second(x + self.down(F.gelu(self.up(x))))


def step(network: nn.Module, x: torch.Tensor) -> Callable[[str], Callable[[], Any]]:
    """Forward and backward pass; returns the loss and the gradients."""

    def on(device: str) -> Callable[[], Any]:
        mine = copy.deepcopy(network).to(device)
        run, inputs = torch.compile(mine, fullgraph=True), x.to(device)

        def train() -> Any:
            loss = run(inputs).square().mean()
            loss.backward()
            return [loss.detach()] + [p.grad for p in mine.parameters()]

        return train

    return on


def call(function: Callable[..., Any], *arguments: torch.Tensor) -> Callable[[str], Callable[[], Any]]:
    def on(device: str) -> Callable[[], Any]:
        run = torch.compile(function, fullgraph=True)
        return lambda: run(*(each.to(device) for each in arguments))

    return on


def normal(code: str) -> list[str]:
    """Without what has to differ: how memory is allocated, kernels are named and called, and threads counted."""
    code = re.sub(r"empty_strided_openreg\((.*), 0\)", r"empty_strided_cpu(\1)", code)
    code = code.replace("openreg:0", "cpu").replace("'openreg', index=0", "'cpu'").replace("'openreg'", "'cpu'")
    code = re.sub(r"(async_compile\.cpp_pybinding\(|compiled_kernel\(async_compile, '\w+', )\[.*?\], r'''", "", code)
    code = re.sub(r'extern "C" void entry.*\n', "", code)
    code = re.sub(r".*(inductor_cpu_.*integer_div_error|openreg_integer_divisions).*\n", "", code)
    code = re.sub(r"#pragma omp parallel num_threads.*", "#pragma omp parallel", code)
    lines = [line.strip() for line in code.splitlines()]
    return [line for line in lines if line and line[0] != "#" and "torch_openreg" not in line]


def assert_code_is_the_cpus(make: Callable[[str], Callable[[], Any]]) -> None:
    code, results = {}, {}
    for device in ("cpu", DEVICE):
        torch._dynamo.reset()
        results[device], written = run_and_get_code(make(device))
        code[device] = [line for each in written for line in normal(each)]
    assert code[DEVICE] == code["cpu"]
    on_cpu = torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, results[DEVICE])
    assert_close(on_cpu, results["cpu"], rtol=1e-5, atol=1e-6)


SMALL = {
    "products": call(lambda x, y: (x @ y + 1, x.t() @ y.t()), torch.randn(1, 8), torch.randn(8, 1)),
    "variance": call(lambda x: torch.var_mean(x, -1), torch.randn(4, 3000)),
    "quotients": call(lambda x: x / 3 + x.argmax(-1, keepdim=True), torch.randn(4, 8).t()),
    "bytes": call(lambda x, y: torch.cat([x, y]) + 1, *(torch.ones(2, 4, dtype=torch.uint8) for _ in range(2))),
    "scattered sums": call(lambda x: torch.zeros_like(x).scatter_reduce(0, x.argsort(0), x, "sum"), torch.randn(4, 8)),
    "images": step(Images(), torch.randn(2, 3, 32, 32)),
    "sentences": step(Sentences(), torch.randn(2, 16, 64)),
}
EVERY_RUN = ("products", "variance")


@pytest.mark.parametrize(
    "make", [pytest.param(SMALL[name], id=name, marks=() if name in EVERY_RUN else pytest.mark.full) for name in SMALL]
)
def test_code_and_results_are_the_cpus(make):
    assert_code_is_the_cpus(make)
