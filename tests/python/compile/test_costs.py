"""What PyTorch's compiler estimates of the device's speed."""

from __future__ import annotations

import pytest
import torch
from torch._functorch import config as functorch_config
from torch._inductor import utils
from torch._inductor.analysis.device_info import lookup_device_info
from torch._inductor.runtime.benchmarking import benchmarker
from torch.utils._runtime_estimation import get_compute_time, get_transfer_time


def test_rates_grow_with_the_cores():
    cores = torch.openreg.get_device_properties().multi_processor_count
    assert utils.get_gpu_dram_gbps() == pytest.approx(4 * cores)
    assert utils.get_device_tflops(torch.float32) == pytest.approx(0.05 * cores)
    assert utils.get_device_tflops(torch.float64) == pytest.approx(0.025 * cores)
    entry = lookup_device_info(torch.openreg.get_device_name())
    assert entry.dram_gb == pytest.approx(torch.openreg.get_device_properties().total_memory / 1e9)
    assert lookup_device_info("no such device") is None


def test_times_are_those_of_the_rates():
    cores = torch.openreg.get_device_properties().multi_processor_count
    a = torch.empty(100, 100, device="openreg")
    assert get_transfer_time([a, a], [a]) == pytest.approx(3 * a.nbytes / (4 * cores))
    nanoseconds = get_compute_time(torch.ops.aten.mm, (a, a), {}, a, {torch.float32})
    assert nanoseconds == pytest.approx(1e6 / (0.75 * 50 * cores))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_tensor_goes_from_one_stream_to_another_in_a_training_step(backend):
    first, second = torch.openreg.Stream(), torch.openreg.Stream()

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        event = torch.openreg.Event()
        with torch.openreg.stream(first):
            y = torch.ones(4, 4, device="openreg")
            event.record()
            z = y * x
        with torch.openreg.stream(second):
            event.wait()
            w = y * 2 * x
        return z, w

    x = torch.ones(4, 4, device="openreg", requires_grad=True)
    torch.openreg.synchronize()
    z, w = torch.compile(step, backend=backend, fullgraph=True)(x)
    torch.openreg.synchronize()
    (z.sum() + w.sum()).backward()
    torch.openreg.synchronize()
    assert w.detach().cpu().eq(2).all() and x.grad.cpu().eq(3).all()


def test_a_measured_time_lasts_until_the_device_has_completed():
    nanoseconds = 3_000_000
    assert benchmarker.benchmark_gpu(lambda: torch.openreg._sleep(nanoseconds)) >= 3  # milliseconds


@pytest.mark.parametrize("estimator", ["flops", pytest.param("profile", marks=pytest.mark.full)])
def test_a_budget_of_memory_decides_what_is_computed_again(estimator):
    def run(x: torch.Tensor) -> torch.Tensor:
        return ((x @ x).sin() @ x).cos().sum()

    x = torch.eye(16, device="openreg", requires_grad=True)
    (expected,) = torch.autograd.grad(run(x), x)
    with functorch_config.patch(activation_memory_budget=0.5, activation_memory_budget_runtime_estimator=estimator):
        (got,) = torch.autograd.grad(torch.compile(run, backend="aot_eager_decomp_partition")(x), x)
    torch.testing.assert_close(got, expected)
