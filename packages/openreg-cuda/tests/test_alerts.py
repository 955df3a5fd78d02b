"""torch.use_deterministic_algorithms(True) raises where a GPU's kernel is not deterministic, as 2.13 documents it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional as F

Call = Callable[[str], object]


def backward_of(compute: Callable[[torch.Tensor], torch.Tensor], *sizes: int) -> Call:
    def call(device: str) -> object:
        return compute(torch.rand(*sizes, device=device, requires_grad=True)).sum().backward()

    return call


def grid_of(dims: int) -> Call:
    def call(device: str) -> object:
        x = torch.rand(1, 2, *[4] * dims, device=device, requires_grad=True)
        return F.grid_sample(x, torch.rand(1, *[3] * dims, dims, device=device), align_corners=False).sum().backward()

    return call


def bag(mode: str) -> Call:
    def call(device: str) -> object:
        embedding = nn.EmbeddingBag(4, 3, mode=mode, device=device)
        return embedding(torch.zeros(2, 3, dtype=torch.long, device=device)).sum().backward()

    return call


def ctc_loss(device: str) -> object:
    x = torch.randn(50, 3, 15, device=device, requires_grad=True)
    return F.ctc_loss(x, torch.ones(3, 30, dtype=torch.long, device=device), [50] * 3, [30, 25, 20]).backward()


def nll_loss(*sizes: int) -> Call:
    def call(device: str) -> object:
        return F.nll_loss(
            torch.rand(2, 3, *sizes, device=device), torch.ones(2, *sizes, dtype=torch.long, device=device)
        )

    return call


def scattered(reduce: str) -> Call:
    def call(device: str) -> object:
        return torch.ones(3, device=device).scatter_reduce(0, torch.tensor([0, 0], device=device), ones(device), reduce)

    return call


def ones(device: str) -> torch.Tensor:
    return torch.ones(2, device=device)


def interpolated(mode: str, dims: int, **options: bool) -> Call:
    return backward_of(
        lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0, mode=mode, **options), 1, 1, *[4] * dims
    )


ALERTS: dict[str, Call] = {
    "avg_pool3d_backward_cuda": backward_of(nn.AvgPool3d(3), 2, 3, 3, 3),
    "adaptive_avg_pool2d_backward_cuda": backward_of(nn.AdaptiveAvgPool2d(3), 2, 3, 3),
    "adaptive_avg_pool3d_backward_cuda": backward_of(nn.AdaptiveAvgPool3d(3), 2, 3, 3, 3),
    "adaptive_max_pool2d_backward_cuda": backward_of(nn.AdaptiveMaxPool2d(3), 2, 3, 3),
    "fractional_max_pool2d_backward_cuda": backward_of(nn.FractionalMaxPool2d(2, output_ratio=0.5), 2, 3, 3, 3),
    "fractional_max_pool3d_backward_cuda": backward_of(nn.FractionalMaxPool3d(2, output_ratio=0.5), 2, 3, 3, 3, 3),
    "upsample_linear1d_backward_out_cuda": interpolated("linear", 1),
    # Since torch 2.15 interpolate() has another way for this one, too.
    "upsample_bicubic2d_backward_out_cuda": backward_of(
        lambda x: torch._C._nn.upsample_bicubic2d(x, None, False, [2.0, 2.0]), 1, 1, 4, 4
    ),
    "upsample_bilinear2d_aa_backward_out_cuda": interpolated("bilinear", 2, antialias=True),
    "reflection_pad1d_backward_out_cuda": backward_of(nn.ReflectionPad1d((1, 2)), 2, 3, 8),
    "reflection_pad3d_backward_out_cuda": backward_of(nn.ReflectionPad3d(1), 2, 3, 8, 8, 8),
    "replication_pad1d_backward_cuda": backward_of(lambda x: torch._C._nn.replication_pad1d(x, (1, 2)), 2, 3, 4),
    "nll_loss2d_forward_out_cuda_template": nll_loss(5, 5),
    "ctc_loss_backward_gpu": ctc_loss,
    "embedding_bag_backward_cuda_max": bag("max"),
    "put_": lambda device: ones(device).put_(torch.tensor([0], device=device), torch.ones(1, device=device), True),
    "_histc_cuda with floating point input": lambda device: torch.histc(ones(device), min=0, max=3),
    "_bincount_cuda": lambda device: torch.bincount(torch.tensor([1, 1], device=device), ones(device)),
    "grid_sampler_2d_backward_cuda": grid_of(2),
    "grid_sampler_3d_backward_cuda": grid_of(3),
    "median CUDA with indices output": lambda device: ones(device).median(0),
    "scatter_reduce_cuda_prod_": scattered("prod"),
}
NONE: dict[str, Call] = {
    "all elements": lambda device: ones(device).median(),
    "integers": lambda device: torch.histc(torch.tensor([1, 2], device=device), min=0, max=3),
    "no weights": lambda device: torch.bincount(torch.tensor([1, 1], device=device)),
    "a sum": scattered("sum"),
    "sums of a bag": bag("sum"),
    "one dimension": nll_loss(),
    "reflection in two dimensions": backward_of(nn.ReflectionPad2d(1), 2, 3, 8, 8),
    # For these two torch.nn.functional has another way, which is deterministic.
    "replication": backward_of(nn.ReplicationPad2d(1), 1, 2, 4, 4),
    "bilinear": interpolated("bilinear", 2),
}


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", ALERTS)
def test_what_is_not_deterministic_on_a_gpu_raises(name: str) -> None:
    call = ALERTS[name]
    call("cuda")
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match=f"{name} does not have a deterministic implementation"):
        call("cuda")
    call("cpu")
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match=f"{name} does not have a deterministic implementation"):
        call("cuda")


@pytest.mark.parametrize("name", NONE)
def test_the_same_operator_computes_what_is_deterministic(name: str) -> None:
    torch.use_deterministic_algorithms(True)
    NONE[name]("cuda")
    torch.cuda.synchronize()
