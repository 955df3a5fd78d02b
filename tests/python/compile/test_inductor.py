"""torch.compile with Inductor: its kernels are commands of the device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from waits import no_waits

DEVICE = "openreg"


def rows(device: str = DEVICE, seed: int = 0) -> torch.Tensor:
    return torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)).to(device)


def fused(x: torch.Tensor) -> torch.Tensor:
    return (x.sin() * 2 + x).softmax(-1)


def assert_equals_the_cpu(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Compares results, and what becomes of the arguments."""
    on_cpu = [copy.deepcopy(argument) for argument in arguments]
    on_device = [each.to(DEVICE) if isinstance(each, torch.Tensor) else each for each in arguments]
    expected = function(*on_cpu)
    got = torch.compile(function, fullgraph=True, **options)(*on_device)
    assert_close(torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, got), expected)
    for mine, theirs in zip(on_device, on_cpu, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert_close(mine.cpu(), theirs)


def test_a_fused_kernel_is_one_command_and_does_not_wait():
    run = torch.compile(fused, fullgraph=True)
    x = rows()
    assert_close(run(x).cpu(), fused(x.cpu()))
    torch.openreg.reset_launch_stats()
    with no_waits():
        y = run(x)
    stats = torch.openreg.launch_stats()
    assert stats["compiled"] == 1 and stats["typed"] == stats["boxed"] == stats["synchronous"] == 0
    assert_close(y.cpu(), fused(x.cpu()))


def test_kernels_run_in_the_order_of_the_stream_with_eager_ones():
    run = torch.compile(lambda x: x * 1.5 + 1, fullgraph=True)
    x, expected = rows(), rows("cpu")
    for _ in range(50):
        x = run(x).neg_()
        expected = (expected * 1.5 + 1).neg_()
    assert_close(x.cpu(), expected)


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_kernels_go_to_the_current_stream():
    run = torch.compile(fused, fullgraph=True)
    x = rows()
    run(x)
    torch.openreg.synchronize()
    side = torch.openreg.Stream()
    with torch.openreg.stream(side):
        torch.openreg._sleep(200_000_000)  # longer than the host may be held up before it asks
        y = run(x)
        assert not side.query()
    assert torch.openreg.default_stream().query()
    side.synchronize()
    assert_close(y.cpu(), fused(x.cpu()))


def test_a_program_runs_where_its_tensors_are():
    run = torch.compile(lambda x, w: fused(x @ w) + torch.ones(16, device=x.device), fullgraph=True)
    w = torch.eye(16)
    for device in ("openreg:1", "openreg:0"):
        before = torch.openreg.memory_allocated(1 - torch.device(device).index)
        y = run(rows(device), w.to(device))
        assert y.device == torch.device(device)
        assert torch.openreg.memory_allocated(1 - torch.device(device).index) <= before
        assert_close(y.cpu(), fused(rows("cpu") @ w) + 1)
    assert torch.openreg.current_device() == 0


def test_a_program_of_both_devices():
    other = torch.device("openreg", 1)
    run = torch.compile(lambda a, b: (a * 2).to(b.device) + b.cos(), fullgraph=True)
    y = run(rows(), rows(other))
    assert y.device == other
    assert_close(y.cpu(), rows("cpu") * 2 + rows("cpu").cos())


def test_a_program_of_the_cpu_and_the_device():
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        on_cpu = x.sin().cpu() * 2
        return on_cpu.to(x.device) + x, on_cpu

    assert_equals_the_cpu(both, rows("cpu"))


def test_numbers_of_the_cpu_travel_with_the_command():
    run = torch.compile(lambda x, a: x * a + 1, fullgraph=True)
    x, factor = rows(), torch.tensor(3.0)
    run(x, factor)
    with no_waits():
        torch.openreg._sleep(20_000_000)
        y = run(x, factor)
        factor.zero_()
    assert_close(y.cpu(), x.cpu() * 3 + 1)


def test_numbers_that_the_device_made_come_back_as_arguments():
    def scaled(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x * x[0, 0].item() + i[1].item()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert_equals_the_cpu(scaled, rows("cpu"), torch.tensor([3, 5]))


def test_views_and_arguments_are_written_in_place():
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x[2:4].zero_()
        y.t().mul_(2).add_(1)
        return x.t().contiguous() + y.sum()

    assert_equals_the_cpu(write, rows("cpu"), rows("cpu", 1))


def test_vectors_of_values_are_added_to_one_element():
    """Where the index does not vary along a row, of which the last vector is not whole."""

    def accumulate(index, values):
        same = index.unsqueeze(-1).expand(values.shape)
        wide, whole = values.double().sin(), (values * 10).long()
        return (
            values.new_zeros(4).index_put((same,), values.sin(), accumulate=True),
            values.new_zeros(4, 2).index_put((same + 1, same % 2), values.cos(), accumulate=True),
            values.new_zeros(2, 4).scatter_add(-1, same, values.sin()),
            wide.new_zeros(4).index_put((same,), wide, accumulate=True),
            whole.new_zeros(4).index_put((same,), whole, accumulate=True),
        )

    generator = torch.Generator().manual_seed(0)
    assert_equals_the_cpu(accumulate, torch.tensor([2, 0]), torch.rand(2, 77, generator=generator))


def test_a_lazy_clone_that_a_kernel_writes_leaves_the_original_alone():
    x = rows()
    clone = torch._lazy_clone(x)
    torch.compile(lambda t: t.mul_(2), fullgraph=True)(clone)
    assert_close(x.cpu(), rows("cpu"))
    assert_close(clone.cpu(), rows("cpu") * 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i] + x.gather(0, i.view(-1, 1).expand(-1, 16)),
        lambda x, i: torch.zeros_like(x).index_add_(0, i, x[: len(i)]),
        lambda x, i: (torch.var_mean(x, -1), x.argmax(-1), x.cumsum(0), x.sum()),
        lambda x, i: torch.div(i, 2, rounding_mode="floor") % 3,
        lambda x, i: F.gelu(x.bfloat16()) * 2,
        lambda x, i: F.pad(x[:0], (1, 2)) + 1,
    ],
    ids=["gather", "scatter", "reductions", "integers", "bfloat16", "empty"],
)
def test_results_are_the_cpus(function):
    assert_equals_the_cpu(function, rows("cpu"), torch.tensor([1, 3, 5, 7]))


def test_one_program_serves_all_sizes():
    run = torch.compile(lambda x: fused(x) + x.shape[0], fullgraph=True, dynamic=True)
    with torch.compiler.set_stance("default"):
        run(rows())
    with torch.compiler.set_stance("fail_on_recompile"):
        for size in (3, 5, 70):
            x = torch.randn(size, 16)
            assert_close(run(x.to(DEVICE)).cpu(), fused(x) + size)


def test_random_numbers_follow_the_generator_of_their_device():
    def draw(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.dropout(x, 0.25), torch.rand_like(x), torch.randint(9, (5,), device=x.device)

    run = torch.compile(draw, fullgraph=True)
    for index in range(2):
        x = torch.ones(64, 64, device=f"openreg:{index}")
        torch.openreg.manual_seed_all(1)
        first, second = run(x), run(x)
        torch.manual_seed(1)
        again = run(x)
        assert all(a.equal(b) for a, b in zip(first, again, strict=True))
        assert not first[1].equal(second[1])
        assert first[0].count_nonzero().item() == pytest.approx(0.75 * 4096, rel=0.05)
        assert first[1].mean().item() == pytest.approx(0.5, abs=0.03)


def test_eager_random_numbers_if_asked_for():
    x = torch.ones(64, 64, device=DEVICE)
    with torch._inductor.config.patch(fallback_random=True):
        torch.manual_seed(3)
        compiled = torch.compile(lambda t: F.dropout(t, 0.5), fullgraph=True)(x)
    torch.manual_seed(3)
    assert compiled.equal(F.dropout(x, 0.5))


def make_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 5)
    )


def test_a_network_trains_as_on_the_cpu():
    device_network, cpu_network = make_network().to(DEVICE), make_network()
    run = torch.compile(device_network, fullgraph=True)
    losses: dict[str, list[float]] = {DEVICE: [], "cpu": []}
    for forward, network, device in ((run, device_network, DEVICE), (cpu_network, cpu_network, "cpu")):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
        images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(device)
        for _ in range(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(forward(images), torch.tensor([0, 1, 2, 3], device=device))
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses[DEVICE] == pytest.approx(losses["cpu"], rel=1e-4)
    assert_close(
        {k: v.cpu() for k, v in device_network.state_dict().items()}, cpu_network.state_dict(), rtol=1e-3, atol=1e-4
    )


def test_external_kernels_go_by_plans():
    run = torch.compile(lambda x, w: fused(x @ w), fullgraph=True)
    x, w = rows(), torch.eye(16, device=DEVICE)
    run(x, w)
    torch.openreg.reset_launch_stats()
    with no_waits():
        run(x, w)
    stats = torch.openreg.launch_stats()
    assert stats["compiled"] == stats["typed"] == stats["plan_hits"] == 1 and stats["plans_made"] == 0


def test_an_index_out_of_range_fails_the_stream_and_names_the_kernel():
    run = torch.compile(lambda x, i: x[i] * 2, fullgraph=True)
    x = rows()
    run(x, torch.tensor([100], device=DEVICE))
    with pytest.raises(
        torch.AcceleratorError, match=r"inductor::cpp_fused_\w+ failed on openreg:0.*index out of bounds"
    ):
        torch.openreg.synchronize()
    assert_close(run(x, torch.tensor([7], device=DEVICE)).cpu(), x.cpu()[[7]] * 2)


def test_a_division_by_zero_fails_the_stream():
    run = torch.compile(lambda a, b: a // b, fullgraph=True)
    ones = torch.ones(4, dtype=torch.long, device=DEVICE)
    run(ones, ones * 0)
    with pytest.raises(torch.AcceleratorError, match="ZeroDivisionError"):
        torch.openreg.synchronize()


def test_divisions_by_zero_on_one_stream_are_not_reported_on_another():
    run = torch.compile(lambda a, b: a // b, fullgraph=True)
    ones = torch.ones(20_000, dtype=torch.long, device=DEVICE)
    zeros = ones * 0
    run(ones, ones)
    torch.openreg.synchronize()
    good, bad = torch.openreg.Stream(), torch.openreg.Stream()
    for _ in range(20):
        with torch.openreg.stream(bad):
            run(ones, zeros)
        with torch.openreg.stream(good):
            y = run(ones, ones)
        with pytest.raises(torch.AcceleratorError, match="ZeroDivisionError"):
            bad.synchronize()
        good.synchronize()
        assert y.sum().item() == 20_000


def test_traces_name_the_kernels():
    run = torch.compile(fused, fullgraph=True)
    x = rows()
    run(x)
    torch.openreg.synchronize()
    with torch.profiler.profile() as profile:
        run(x)
        torch.openreg.synchronize()
    assert [
        event.name for event in profile.events() if event.name.startswith("inductor::cpp_fused__softmax_add_mul_sin_0")
    ]


@pytest.mark.full
def test_programs_leave_no_memory_behind(run_python):
    result = run_python(
        "import torch\n"
        "run = torch.compile(lambda x, w: ((x @ w).softmax(-1).sum(0), x.t() + 1))\n"
        "x, w = torch.randn(8, 16, device='openreg'), torch.randn(16, 16, device='openreg', requires_grad=True)\n"
        "for _ in range(3):\n"
        "    y, z = run(x, w)\n"
        "    y.sum().backward()\n"
        "torch.openreg.synchronize()\n",
        TORCH_OPENREG_DEBUG_MEMORY="1",
    )
    assert "openreg" not in result.stderr


def test_a_storage_that_was_freed_is_refused():
    run = torch.compile(fused, fullgraph=True)
    x = rows()
    run(x)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="storage"):
        run(x)


def test_a_kernel_takes_what_its_parameters_are():
    from torch_openreg import _C

    kernel = _C.compiled_kernel("inductor::never_called", 1, ["const float*", "float*", "const int64_t"])
    x = rows()
    with pytest.raises(RuntimeError, match=r"too few arguments for inductor::never_called \(got 2, expected 3\)"):
        kernel(x, x)
    with pytest.raises(RuntimeError, match=r"too many arguments for inductor::never_called \(expected 3\)"):
        kernel(x, x, 1, 2)
    with pytest.raises(RuntimeError, match=r"takes tensors of a device \(got one of cpu with 2 dimensions"):
        kernel(x.cpu(), x, 1)
    with pytest.raises(RuntimeError, match=r"takes tensors of a device \(got one of cpu with 0 dimensions"):
        kernel(x, torch.tensor(1.0), 1)
    with pytest.raises(RuntimeError, match="same device"):
        kernel(x, x.to("openreg:1"), 1)
    with pytest.raises(RuntimeError, match="argument 2 of inductor::never_called must be a number"):
        kernel(x, x, x)
    with pytest.raises(RuntimeError, match="argument 0 of inductor::never_called cannot be an integer"):
        kernel(1, x, 1)
    with pytest.raises(TypeError):
        kernel(x, x, "1")
