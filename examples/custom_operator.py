"""A custom operator on openreg, in Python or in C++: ``gated(x, gate) = x * sigmoid(gate)``.

    python examples/custom_operator.py          # written in Python, with torch.library
    python examples/custom_operator.py --cpp    # written in C++ (custom_operator.cpp), built by the first run

Both versions have a kernel for the device, one for tensors without data, a derivative and a batching rule. This is all
that autograd, torch.func, torch.compile and torch.export need, as the checks at the end show.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Operator = Callable[[Tensor, Tensor], Tensor]


def define_in_python() -> Operator:
    """Defines ``examples::gated`` and returns it."""

    def check_shapes(x: Tensor, gate: Tensor) -> None:
        torch._check(x.shape == gate.shape, lambda: f"gated: the shapes differ (got {x.shape} and {gate.shape})")

    # The kernel is Python code that calls operators: the host runs it without waiting, and the device computes later.
    # With `device_types="openreg"` it would apply to this device only.
    @torch.library.custom_op("examples::gated", mutates_args=())
    def gated(x: Tensor, gate: Tensor) -> Tensor:
        check_shapes(x, gate)
        return x * torch.sigmoid(gate)

    @gated.register_fake
    def _(x: Tensor, gate: Tensor) -> Tensor:
        check_shapes(x, gate)
        return torch.empty_like(x)

    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, gate = ctx.saved_tensors
        opened = torch.sigmoid(gate)
        return gradient * opened, gradient * x * opened * (1 - opened)

    gated.register_autograd(backward, setup_context=setup_context)
    register_batches("examples::gated", gated)
    return gated


def define_in_cpp(build_directory: str | None = None) -> Operator:
    """Builds ``examples_cpp::gated`` from custom_operator.cpp and returns it.

    Args:
        build_directory: where to build; None means PyTorch's cache.
    """
    from torch.utils import cpp_extension

    cpp_extension.load(
        "openreg_custom_operator",
        [str(Path(__file__).with_name("custom_operator.cpp"))],
        build_directory=build_directory,
        extra_cflags=["-O1"],
        is_python_module=False,
    )
    gated = torch.ops.examples_cpp.gated.default
    register_batches("examples_cpp::gated", gated)
    return gated


def register_batches(name: str, operator: Operator) -> None:
    """The rule for ``torch.vmap``: the operator is element-wise, so a batch is one more dimension."""

    def batched(info: Any, in_dims: tuple[int | None, int | None], x: Tensor, gate: Tensor) -> tuple[Tensor, int]:
        def in_front(tensor: Tensor, dim: int | None) -> Tensor:
            return tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)

        return operator(in_front(x, in_dims[0]), in_front(gate, in_dims[1])), 0

    torch.library.register_vmap(name, batched)


def check(operator: Operator, device: str) -> dict[str, Any]:
    """Tests the operator with each part of PyTorch; returns the largest differences, or whether it works."""
    torch.manual_seed(0)
    x, gate = (torch.randn(4, 3, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2))

    def reference(x: Tensor, gate: Tensor) -> Tensor:
        return x * torch.sigmoid(gate)

    class Model(torch.nn.Module):
        def forward(self, x: Tensor, gate: Tensor) -> Tensor:
            return operator(x, gate).sum()

    def largest(got: Tensor, expected: Tensor) -> float:
        return (got.cpu() - expected.cpu()).abs().max().item()

    tests = torch.library.opcheck(operator, (x, gate))
    compiled = torch.compile(operator, backend="aot_eager", fullgraph=True)
    exported = torch.export.export(Model(), (x.detach(), gate.detach())).module()
    expected = reference(x, gate)
    return {
        "opcheck": sorted(tests) if set(tests.values()) == {"SUCCESS"} else tests,
        "gradcheck": torch.autograd.gradcheck(operator, (x, gate)),
        "gradgradcheck": torch.autograd.gradgradcheck(operator, (x, gate)),
        "forward": largest(operator(x, gate), expected),
        "vmap": largest(torch.vmap(operator, (1, None))(x, gate[:, 0]), reference(x, gate[:, :1]).t()),
        "compile": largest(compiled(x, gate), expected),
        "export": largest(exported(x, gate), expected.sum()),
        "device": str(operator(x, gate).device),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpp", action="store_true", help="use the C++ version instead of the Python version")
    parser.add_argument("--build-directory", help="where to build the C++ operator")
    parser.add_argument("--device", default="openreg")
    options = parser.parse_args()
    operator = define_in_cpp(options.build_directory) if options.cpp else define_in_python()
    print(json.dumps(check(operator, options.device)))


if __name__ == "__main__":
    main()
