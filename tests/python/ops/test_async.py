"""Launches are asynchronous, and results do not depend on the thread that runs them."""

from __future__ import annotations

import time
import warnings

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close
from waits import no_waits

pytestmark = pytest.mark.any_device


@pytest.mark.alone("it measures how long calls take")
def test_a_chain_of_products_returns_at_once():
    x = torch.randn(1500, 1500).to(DEVICE)
    (x @ x).sum().item()
    best = 1.0
    for _ in range(3):
        begin = time.perf_counter()
        y = x
        for _ in range(10):
            y = y @ x
        launched = time.perf_counter()
        torch.accelerator.synchronize()
        done = time.perf_counter()
        best = min(best, (launched - begin) / (done - launched))
    assert best < 0.05


class _Nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return None


def modes():
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class CountingFunctions(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    return {
        "none": _Nothing,
        "dispatch mode": Counting,
        "function mode": CountingFunctions,
        "fake tensors": FakeTensorMode,
        "inference": torch.inference_mode,
        "no grad": torch.no_grad,
        "autocast": lambda: torch.autocast(DEVICE, torch.float16),
        "cpu autocast": lambda: torch.autocast("cpu", torch.bfloat16),
        "profiler": torch.profiler.profile,
        "caught warnings": warnings.catch_warnings,
        "deterministic": lambda: torch.utils.deterministic.fill_uninitialized_memory and _Nothing(),
    }


@pytest.mark.parametrize("name", modes())
def test_a_host_that_works_while_it_waits_computes_what_an_engine_would(name):
    a = torch.randn(300, 300, requires_grad=True)
    x = a.detach().to(DEVICE).requires_grad_()
    # Launched outside of the mode, run by the host that synchronises inside of it.
    y = x
    for _ in range(40):
        y = torch.tanh(y @ x) + y
    with modes()[name]():
        torch.accelerator.synchronize()
    expected = a
    for _ in range(40):
        expected = torch.tanh(expected @ a) + expected
    assert y.requires_grad
    assert_close(y.detach().cpu(), expected.detach(), rtol=1e-3, atol=1e-3)


def test_synchronising_inside_vmap():
    x = torch.randn(100, 100).to(DEVICE)
    results = [x @ x for _ in range(20)]

    def f(row):
        torch.accelerator.synchronize()
        return row * 2

    doubled = torch.func.vmap(f)(x)
    assert_close(doubled.cpu(), x.cpu() * 2)
    assert_close(results[-1].cpu(), x.cpu() @ x.cpu(), rtol=1e-4, atol=1e-4)


def test_freed_memory_is_reused_in_the_order_of_the_stream():
    x = torch.randn(200, 200).to(DEVICE)
    expected = x.cpu()
    for _ in range(100):
        temporary = x + 1  # freed while the product that reads it is queued
        y = temporary @ x
        del temporary
        torch.full((200, 200), float("nan"), device=DEVICE)  # takes its memory
        assert_close(y.cpu(), (expected + 1) @ expected, rtol=1e-3, atol=1e-3)


@pytest.mark.openreg_only
@pytest.mark.parametrize("call", ["index", "tolist", "resize", "numpy"])
def test_host_paths_that_hold_the_gil_do_not_deadlock(call, library):
    library.define("slow(Tensor x) -> Tensor")
    library.impl("slow", lambda x: x + 1, "CPU")
    x = torch.zeros(8, dtype=torch.uint8, device=DEVICE)
    y = getattr(torch.ops, library.ns).slow(x)
    z = y + 1
    storage = z.untyped_storage()
    if call == "index":
        assert storage[0] == 2
    elif call == "tolist":
        assert storage.tolist()[0] == 2
    elif call == "resize":
        storage.resize_(4096)
        assert z[0].item() == 2
    else:
        assert z.numpy(force=True)[0] == 2


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("size", [0, 1, 5, 1000])
def test_elements_are_repeated_without_a_wait_if_the_size_is_given(dtype, size):
    repeats = torch.arange(size, dtype=dtype) % 4
    x = torch.randn(size, 3)
    expected = x.repeat_interleave(repeats, 0)
    rows, counts = x.to(DEVICE), repeats.to(DEVICE)
    every_other = torch.stack([counts, counts], 1)[:, 0]
    with no_waits():
        results = [rows.repeat_interleave(each, 0, output_size=len(expected)) for each in (counts, counts, every_other)]
        results += [rows.repeat_interleave(2, 0), torch.repeat_interleave(counts, output_size=len(expected))]
    for result in results[:3]:
        assert torch.equal(result.cpu(), expected)
    assert torch.equal(results[3].cpu(), x.repeat_interleave(2, 0))
    assert torch.equal(results[4].cpu(), torch.repeat_interleave(repeats)) and results[4].dtype == dtype
