"""Modes of the process and the thread: deterministic algorithms, defaults, denormal numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from torch.testing import assert_close

pytestmark = pytest.mark.any_device


EMPTY: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "empty": lambda dtype: torch.empty(5, dtype=dtype, device=DEVICE),
    "empty_like": lambda dtype: torch.empty_like(torch.ones(5, dtype=dtype, device=DEVICE)),
    "new_empty": lambda dtype: torch.ones(1, dtype=dtype, device=DEVICE).new_empty(5),
    "empty_strided": lambda dtype: torch.empty_strided((5,), (2,), dtype=dtype, device=DEVICE),
    "empty_permuted": lambda dtype: torch.empty_permuted((5, 1), (1, 0), dtype=dtype, device=DEVICE),
    "resize_": lambda dtype: torch.ones(2, dtype=dtype, device=DEVICE).resize_(7)[2:],
}


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("maker", EMPTY)
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int32, torch.uint8, torch.bool],
    ids=str,
)
def test_uninitialised_memory_is_filled(maker, dtype):
    got = EMPTY[maker](dtype).cpu().flatten()
    if dtype.is_floating_point or dtype.is_complex:
        assert got.isnan().all()
    elif dtype == torch.bool:
        assert got.all()
    else:
        assert got.tolist() == [torch.iinfo(dtype).max] * 5


@pytest.mark.usefixtures("deterministic")
def test_filling_can_be_switched_off():
    block = torch.full((1000,), 7.0, device=DEVICE)
    address = block.data_ptr()
    del block
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        again = torch.empty(1000, device=DEVICE)
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
    assert again.data_ptr() == address and again.unique().tolist() == [7.0]


NOT_DETERMINISTIC: dict[str, Callable[[str], Any]] = {
    "put_": lambda device: torch.zeros(3, device=device).put_(
        torch.tensor([0, 0], device=device), torch.ones(2, device=device)
    ),
    "max_unpooling2d_forward_out": lambda device: F.max_unpool2d(
        torch.ones(1, 1, 2, 2, device=device), torch.arange(4, device=device).view(1, 1, 2, 2), 2
    ),
}


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("name", NOT_DETERMINISTIC)
def test_what_has_no_deterministic_kernel_raises_at_the_call(name):
    messages = []
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match=f"{name} does not have a deterministic implementation") as error:
            NOT_DETERMINISTIC[name](device)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@pytest.mark.parametrize("name", NOT_DETERMINISTIC)
def test_what_has_no_deterministic_kernel_warns_where_that_is_asked_for(name):
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with pytest.warns(UserWarning, match=f"{name} does not have a deterministic implementation") as warned:
            NOT_DETERMINISTIC[name](DEVICE)
            torch.accelerator.synchronize()
        assert len(warned) == 1
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_results_are_the_same_each_time():
    index = torch.randint(10, (5000,), device=DEVICE)
    source = torch.randn(5000, device=DEVICE)

    def results() -> list[torch.Tensor]:
        zeros = torch.zeros(10, device=DEVICE)
        return [
            zeros.index_add(0, index, source),
            zeros.scatter_add(0, index, source),
            zeros.index_put((index,), source, accumulate=True),
            torch.bincount(index, source if DEVICE != "cuda" else None),  # where CUDA's weights are refused
            source.cumsum(0),
        ]

    first = results()
    for _ in range(3):
        for got, expected in zip(results(), first, strict=True):
            assert torch.equal(got, expected)


@pytest.fixture(params=[DEVICE, f"{DEVICE}:1"])
def default_device(request) -> Iterator[str]:
    torch.set_default_device(request.param)
    yield request.param
    torch.set_default_device(None)


def test_factories_use_the_default_device(default_device):
    index = torch.device(default_device).index or 0
    made = [
        torch.ones(2),
        torch.tensor([1, 2]),
        torch.arange(3),
        torch.randn(2),
        torch.randperm(4),
        torch.eye(2),
        torch.nn.Linear(2, 2).weight,
        torch.full((2,), 1j),
        torch.hann_window(4),
    ]
    assert {tensor.device for tensor in made} == {torch.device(DEVICE, index)}
    assert torch.get_default_device() == torch.device(DEVICE, index)
    assert torch.ones(2, device="cpu").is_cpu and torch.from_numpy(torch.ones(2, device="cpu").numpy()).is_cpu


def test_contexts_go_before_the_default_device(default_device):
    with torch.device("cpu"):
        assert torch.ones(2).is_cpu
        with torch.device(f"{DEVICE}:0"):
            assert torch.ones(2).device.index == 0
    assert torch.ones(2).device.type == DEVICE
    assert torch.get_default_device().type == DEVICE


def test_a_loader_shuffles_with_a_generator_of_the_default_device(default_device):
    data = torch.utils.data.TensorDataset(torch.arange(8))
    loader = torch.utils.data.DataLoader(data, shuffle=True, generator=torch.Generator(default_device))
    assert sorted(batch.item() for (batch,) in loader) == list(range(8))


@pytest.fixture(params=[torch.float64, torch.float16, torch.bfloat16], ids=str)
def default_dtype(request) -> Iterator[torch.dtype]:
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(torch.float32)


def test_results_have_the_default_dtype(default_dtype):
    def results(device: str) -> list[torch.Tensor]:
        ints = torch.arange(1, 4, device=device)
        return [
            ints / 3,
            ints.sin(),
            ints.float().double().to(torch.get_default_dtype()) * 2,
            torch.ones(2, device=device),
            torch.tensor([1.5], device=device),
            torch.complex(torch.ones(2, device=device).float(), torch.zeros(2, device=device).float()),
            torch.linspace(0, 1, 5, device=device),
            torch.arange(0, 1, 0.25, device=device),
            torch.full((2,), 0.5, device=device),
            torch.logspace(0, 1, 3, device=device),
            ints.bool() * 1.5,
            torch.where(ints > 1, 1.0, ints),
        ]

    for got, expected in zip(results(DEVICE), results("cpu"), strict=True):
        assert got.dtype == expected.dtype
        assert_close(got.cpu(), expected)
    assert torch.rand(2, device=DEVICE).dtype == default_dtype


def test_a_change_of_the_default_dtype_does_not_reach_queued_work():
    x = torch.arange(1, 100_000, device=DEVICE)
    expected = x.cpu() / 3
    got = x / 3
    torch.set_default_dtype(torch.float64)
    try:
        torch.accelerator.synchronize()
    finally:
        torch.set_default_dtype(torch.float32)
    assert got.dtype == torch.float32 and torch.equal(got.cpu(), expected)


def test_denormal_numbers_are_flushed_while_the_mode_is_on():
    tiny = torch.full((1000,), 1e-310, dtype=torch.float64, device=DEVICE)
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        flushed = tiny * 1
    finally:
        torch.set_flush_denormal(False)
    assert flushed.unique().tolist() == [0.0]
    assert (tiny * 1).unique().tolist() == [1e-310]
