"""PyTorch's databases of modules and optimizers on the device, compared with the CPU.

Every fourth entry, by a hash of its name, runs each time; all of them with ``-m ""``.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from devices import DEVICE
from slices import one_in
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = pytest.mark.any_device

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

# Their results are random, whatever the seed: only shapes and dtypes are compared.
RANDOM = ("Dropout", "RReLU", "FractionalMaxPool")


SLOW = {"nn.Transformer", "nn.TransformerDecoderLayer"}  # 9 to 17 seconds each


def sliced(entries: Any, name: Any) -> list[Any]:
    return [
        pytest.param(entry, id=name(entry), marks=pytest.mark.full)
        if name(entry) in SLOW
        else one_in(4, name(entry), entry)
        for entry in entries
    ]


def moved(value: Any, device: str) -> Any:
    def move(leaf: Any) -> Any:
        return leaf.detach().to(device).requires_grad_(leaf.requires_grad) if isinstance(leaf, torch.Tensor) else leaf

    return tree_map(move, value)


def outputs_and_gradients(module: torch.nn.Module, arguments: tuple[Any, dict[str, Any]]) -> list[torch.Tensor]:
    args, kwargs = arguments
    outputs = [leaf for leaf in tree_leaves(module(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    inputs = [t for t in tree_leaves(arguments) if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs += [p for p in module.parameters() if p.requires_grad]
    differentiable = [o for o in outputs if o.requires_grad]
    if not differentiable or not inputs:
        return outputs
    seeds = [torch.ones_like(o) for o in differentiable]
    gradients = torch.autograd.grad(differentiable, inputs, seeds, allow_unused=True)
    return outputs + [g for g in gradients if g is not None]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("info", sliced(module_db, lambda info: info.name))
def test_modules_equal_the_cpu(info, training):
    compared = 0
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
    for sample in inputs:
        if sample.forward_input is None:
            continue
        arguments = (sample.forward_input.args, sample.forward_input.kwargs)
        torch.manual_seed(0)
        try:
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
            module.train(training)
            module(*moved(arguments[0], "cpu"), **moved(arguments[1], "cpu"))  # a lazy one gets its parameters
            device_module = copy.deepcopy(module).to(DEVICE)
            torch.manual_seed(1)
            expected = outputs_and_gradients(module, moved(arguments, "cpu"))
        except Exception:
            continue  # whatever the CPU cannot do is not ours to judge
        torch.manual_seed(1)
        got = outputs_and_gradients(device_module, moved(arguments, DEVICE))
        random = any(word in info.name for word in RANDOM) or (training and "Transformer" in info.name)
        for g, e in zip(got, expected, strict=True):
            assert g.device.type == DEVICE and g.shape == e.shape and g.dtype == e.dtype
            if not random and e.layout == torch.strided:
                assert_close(g.cpu(), e, rtol=1e-4, atol=1e-4, equal_nan=True)
        compared += 1
    if compared == 0:
        pytest.skip("none of its samples works on the CPU")


def trained(info: Any, flags: dict[str, bool], options: dict[str, Any], device: str) -> list[torch.Tensor]:
    """Parameters after three steps."""
    torch.manual_seed(0)
    parameters = [torch.randn(shape).to(device).requires_grad_() for shape in ((4, 3), (3, 4))]
    if "differentiable" in flags:  # they are changed in place, within a graph
        parameters = [p.clone() for p in parameters]
    optimizer = info.optim_cls(parameters, **options, **flags)
    for step in range(3):

        def closure(step: int = step) -> torch.Tensor:
            loss = torch.zeros((), device=device)
            for i, p in enumerate(parameters):
                factor = i + step + 1
                gradient = (p.detach() * factor).cos() * factor
                p.grad = gradient.to_sparse() if info.only_supports_sparse_grads else gradient
                loss += (p.detach() * factor).sin().sum()
            return loss

        closure()
        optimizer.step(closure if info.step_requires_closure else None)
    return [p.detach().cpu() for p in parameters]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", sliced(optim_db, lambda info: info.optim_cls.__name__))
def test_optimizers_equal_the_cpu_in_every_implementation(info):
    for implementation in ("plain", *info.supported_impls):
        flags = {} if implementation == "plain" else {implementation: True}
        for sample in info.optim_inputs_func(device="cpu"):
            if any(isinstance(value, torch.Tensor) for value in sample.kwargs.values()):
                continue  # learning rates that are tensors belong to the device of the sample
            options = {name: value for name, value in sample.kwargs.items() if name not in flags}
            got, expected = (trained(info, flags, options, device) for device in (DEVICE, "cpu"))
            for g, e in zip(got, expected, strict=True):
                assert_close(g, e, rtol=1e-4, atol=1e-5)
