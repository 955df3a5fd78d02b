"""Composite operators take the same path as on the CPU: PyTorch often chooses a fast one by the name of the device.

A dispatch mode records which operators a call is made of, on both devices. It does not see a path that PyTorch takes
only if no mode is active (`max_pool1d` without a gradient), nor what operators of the device itself replace
(composite.cpp, recurrent.cpp): these leave the whole to the composite kernel while a mode is active.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from devices import DEVICE
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

pytestmark = [
    pytest.mark.any_device,
    pytest.mark.full,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore"),
]  # a minute, quiet

# Why the paths differ.
EXPECTED = {
    "nn.functional.dropout": "one operator, as on CUDA, in place of four",
    "nn.functional.multi_head_attention_forward": "its dropout",
    "nn.functional.scaled_dot_product_attention": "its dropout",
    "nn.functional.rms_norm": "one operator, as on CUDA, in place of six",
    "nn.functional.embedding_bag": "the CPU copies a view of an argument",
    "ravel": "the CPU copies a view of an argument",
}
COPIES = {"aten._to_copy.default", "aten.detach.default", "aten.alias.default"}


class Path(TorchDispatchMode):
    """The operators that reach a backend, without those that only copy or name."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if str(function) not in COPIES:
            self.operators[str(function)] += 1
        return function(*args, **(kwargs or {}))


def path_of(call: Callable[[], object]) -> Counter[str]:
    with Path() as path:
        call()
    return path.operators


def moved(sample: object, device: str) -> object:
    def move(value: object) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().to(device).requires_grad_(value.requires_grad)

    return tree_map(move, sample)


def paths(entry, sample, grad: bool) -> list[Counter[str]]:
    found = []
    for device in ("cpu", DEVICE):
        first, args, kwargs = moved((sample.input, sample.args, sample.kwargs), device)
        torch.manual_seed(0)
        with torch.set_grad_enabled(grad):
            found.append(path_of(lambda: entry(first, *args, **kwargs)))  # noqa: B023
    return found


@pytest.mark.parametrize("grad", [False, True], ids=["inference", "training"])
def test_operators_have_the_paths_of_the_cpu(grad):
    different: dict[str, str] = {}
    compared = 0
    for entry in op_db:
        if torch.float32 not in entry.dtypes or (grad and not entry.supports_autograd):
            continue
        # as_strided reads memory beside its tensor, which is not moved; the others are NVIDIA's alone.
        if entry.name.startswith(("as_strided", "jiterator")):
            continue
        for sample in list(entry.sample_inputs("cpu", torch.float32, requires_grad=grad))[:3]:
            try:
                on_cpu, on_device = paths(entry, sample, grad)
            except RuntimeError as error:
                if "to be on cpu" not in str(error):  # an argument that stays there
                    different[entry.name] = str(error)
                continue
            compared += 1
            if on_cpu != on_device:
                different.setdefault(entry.name, f"{on_cpu - on_device} -> {on_device - on_cpu}")
    assert {name: found for name, found in different.items() if name not in EXPECTED} == {}
    assert not grad or set(EXPECTED) == set(different), "some paths have become those of the CPU"
    assert compared > 1000
