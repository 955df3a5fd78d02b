"""Kernels that are not PyTorch's: without computing, they are commands that do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.no_executor("nothing computes")


def call_operators_without_kernels():
    library = torch.library.Library("bodiless", "DEF")
    library.define("scaled(Tensor x, Tensor(a!) out, float factor) -> Tensor")
    library.define("update(Tensor(a!) x, Tensor y) -> ()")
    library.define("parts(Tensor x, int n) -> Tensor[]")

    @torch.library.register_fake("bodiless::scaled")
    def _(x, out, factor):
        if x.shape != out.shape:
            raise ValueError("the shapes differ")
        return x.new_empty(x.shape[0], 7)

    @torch.library.register_fake("bodiless::parts")
    def _(x, n):
        return [x.new_empty(x.shape[0] // n, x.shape[1]) for _ in range(n)]

    torch.library.register_fake("bodiless::update", lambda x, y: None)
    x, out = torch.randn(2, 4096, 1024, device="openreg")
    known = torch.arange(4, device="openreg")
    held = torch.openreg.memory_allocated()
    result = torch.ops.bodiless.scaled(x, out, 2.0)
    assert (result.shape, result.device) == ((4096, 7), x.device)
    assert torch.openreg.memory_allocated() - held == result.nbytes
    assert [part.shape for part in torch.ops.bodiless.parts(x, 4)] == [(4096 // 4, 1024)] * 4
    assert torch.ops.bodiless.update(known, x) is None
    assert torch.openreg.compute_report()["unknown_reads"] == []
    assert known.tolist() == [0] * 4  # they are unknown now
    assert len(torch.openreg.compute_report()["unknown_reads"]) == 1
    try:
        torch.ops.bodiless.scaled(x, known, 2.0)
    except ValueError as error:
        assert str(error) == "the shapes differ"
    else:
        raise AssertionError("the fake function's error was lost")
    with torch.profiler.profile() as profile:
        torch.ops.bodiless.scaled(x, out, 2.0)
        torch.openreg.synchronize()
    assert any(event.key == "bodiless::scaled" for event in profile.key_averages())


def differentiate_an_operator_without_a_kernel():
    library = torch.library.Library("bodiless", "DEF")
    library.define("linear(Tensor x, Tensor w) -> Tensor")
    library.define("linear_backward(Tensor g, Tensor x, Tensor w) -> (Tensor, Tensor)")
    torch.library.register_fake("bodiless::linear", lambda x, w: x.new_empty(x.shape[0], w.shape[0]))
    torch.library.register_fake("bodiless::linear_backward", lambda g, x, w: (torch.empty_like(x), torch.empty_like(w)))
    torch.library.register_autograd(
        "bodiless::linear",
        lambda context, g: torch.ops.bodiless.linear_backward(g, *context.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    x, w = (torch.randn(rows, 1024, device="openreg", requires_grad=True) for rows in (4096, 16))
    torch.ops.bodiless.linear(x, w).square().mean().backward()
    assert (x.grad.shape, w.grad.shape) == (x.shape, w.shape)


def call_a_function_in_python():
    @torch.library.custom_op("bodied::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        temporary = x * 2
        return temporary.clone()

    twice.register_fake(torch.empty_like)
    x = torch.randn(4096, 1024, device="openreg")
    torch.accelerator.reset_peak_memory_stats()
    held = torch.openreg.memory_allocated()
    y = twice(x)
    assert torch.openreg.memory_allocated() - held == y.nbytes
    assert torch.openreg.max_memory_allocated() - held == 2 * y.nbytes


def race_in_operators_without_kernels():
    library = torch.library.Library("bodiless", "DEF")
    library.define("fill(Tensor(a!) x) -> ()")
    torch.library.register_fake("bodiless::fill", lambda x: None)
    x = torch.randn(4096, 1024, device="openreg")
    torch.ops.bodiless.fill(x)
    try:
        with torch.Stream("openreg"):
            torch.ops.bodiless.fill(x)
    except torch.openreg.UnsynchronizedAccessError as error:
        assert "bodiless::fill" in str(error)
    else:
        raise AssertionError("the race was not found")


@pytest.mark.parametrize(
    ("program", "variables"),
    [
        (call_operators_without_kernels, {}),
        (differentiate_an_operator_without_a_kernel, {}),
        (call_a_function_in_python, {}),
        (race_in_operators_without_kernels, {"TORCH_OPENREG_DETECT_RACES": "1"}),
    ],
)
def test_an_operator_needs_no_kernel_if_it_has_a_fake_one(program, variables, run_alone):
    run_alone(program, TORCH_OPENREG_COMPUTE="0", **variables)


@pytest.mark.full
def test_launches_of_triton_are_commands_that_do_nothing(run_python):
    pytest.importorskip("triton", reason="Triton is not installed")
    folders = [str(Path(__file__).parents[each]) for each in (0, 1)]
    program = f"import sys; sys.path += {folders}\nimport triton_programs; triton_programs.run_all()"
    run_python(program, timeout=300, TORCH_OPENREG_COMPUTE="0")
