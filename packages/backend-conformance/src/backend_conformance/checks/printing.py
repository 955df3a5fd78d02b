"""Printing: what a user sees of a tensor of the device.

`repr` of a tensor copies it to the CPU if it can, and runs operators of the device for what it does not. Operators
that read one element (`aten::_local_scalar_dense`) synchronize implicitly.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from backend_conformance import Device, Level, check

_TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "floats": lambda: torch.tensor([1.5, -2.0, 3.25]),
    "integers": lambda: torch.tensor([[1, 2], [30, -4]]),
    "bools": lambda: torch.tensor([True, False]),
    "complex numbers": lambda: torch.tensor([1 + 2j, -0.5j]),
    "one number": lambda: torch.tensor(3.5),
    "no elements": lambda: torch.empty(0),
    "no elements in two dimensions": lambda: torch.empty(2, 0),
    "infinite numbers": lambda: torch.tensor([float("inf"), float("-inf"), float("nan"), 1.0]),
    "numbers of many sizes": lambda: torch.tensor([1e-8, 1.0, 1e8]),
    "more than a thousand": lambda: torch.arange(2000.0),
    "a large matrix": lambda: torch.arange(40_000.0).view(200, 200),
    "bfloat16": lambda: torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
    "uint8": lambda: torch.tensor([0, 255], dtype=torch.uint8),
    "a transposed view": lambda: torch.arange(6.0).view(2, 3).t(),
    "a conjugated view": lambda: torch.tensor([1 + 2j]).conj(),
    "one that requires a gradient": lambda: torch.tensor([1.0, 2.0], requires_grad=True),
    "a result with a derivative": lambda: torch.tensor([1.0, 2.0], requires_grad=True) * 2,
}


@check(level=Level.TRAINS, hook="the operators of torch/_tensor_str.py", cases=tuple(_TENSORS))
def text_is_that_of_the_cpu_and_the_device(device: Device, case: str) -> None:
    """`repr` is that of the same tensor on the CPU, with the device added."""
    host = _TENSORS[case]()
    there = host.detach().to(device.this).requires_grad_(host.requires_grad and host.is_leaf)
    if host.grad_fn is not None:
        there = host.detach().div(2).to(device.this).requires_grad_() * 2
    expected, found = _words(repr(host)), _words(repr(there))
    assert f"device='{device.this}'" in found, f"the text does not name the device: {found}"
    assert found.replace(f", device='{device.this}'", "") == expected, f"{found}\ninstead of\n{expected}"


@check(level=Level.BOOTS, hook="aten::_local_scalar_dense")
def elements_can_be_read(device: Device) -> None:
    """`item()`, `tolist()`, `int()`, `float()`, `bool()`, `complex()` and use as an index have the values."""
    x = torch.tensor([[1.5, -2.0], [0.0, 4.0]], device=device.this)
    assert x[0, 1].item() == -2.0 and x.tolist() == [[1.5, -2.0], [0.0, 4.0]]
    assert float(x[0, 0]) == 1.5 and int(x[1, 1]) == 4
    assert bool(x[0, 0] > 1) and not bool(x[1, 0])
    assert ["a", "b", "c"][torch.tensor(2, device=device.this)] == "c"
    assert list(range(torch.tensor(3, device=device.this))) == [0, 1, 2]
    assert complex(torch.tensor(1 + 2j, device=device.this)) == 1 + 2j
    assert torch.tensor(1 << 40, device=device.this).item() == 1 << 40
    assert torch.tensor(True, device=device.this).item() is True
    assert 4.0 in x and len(x) == 2 and [row[0].item() for row in x] == [1.5, 0.0] and x[0, -1:].item() == -2.0
    assert torch.tensor([1 + 2j, -1j], device=device.this).tolist() == [1 + 2j, -1j]
    for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int16, torch.int32):
        assert torch.tensor([0, 7], device=device.this).to(dtype)[1].item() == 7


@check(level=Level.BOOTS, hook="aten::_local_scalar_dense")
def text_of_one_element_can_be_formatted(device: Device) -> None:
    """A tensor with one element takes format specifications, as on the CPU."""
    x = torch.tensor(3.14159, device=device.this)
    assert f"{x:.2f}" == "3.14"
    assert f"{torch.tensor(7, device=device.this):03d}" == "007"


@check(level=Level.BOOTS, hook="aten::_local_scalar_dense: wait for the stream")
def elements_are_read_after_the_work_before_them(device: Device) -> None:
    """`item()`, `tolist()` and `repr` wait for what the operators before them compute."""
    x = torch.ones(200, 200, device=device.this)
    for number in range(1, 5):
        product = torch.full((200, 200), number / 200, device=device.this)
        for _ in range(4):
            product = (product @ x) / 200
        assert abs(product[7, 9].item() - number / 200) < 1e-5
        assert abs(product[0].tolist()[199] - number / 200) < 1e-5
        assert f"{number / 200:.4f}" in repr(product), repr(product)


@check(level=Level.TRAINS, hook="aten::_copy_from of parameters")
def modules_can_be_printed(device: Device) -> None:
    """Modules, parameters and lists of tensors can be printed."""
    module = torch.nn.Linear(2, 3).to(device.this)
    assert repr(module) == "Linear(in_features=2, out_features=3, bias=True)"
    assert repr(module.weight).startswith("Parameter containing:")
    assert str(device.this) in repr([module.bias]) and str(device.this) in str(module.state_dict())


@check(level=Level.COMPLETE, hook="torch.set_printoptions", needs=("several_devices",))
def text_names_the_index(device: Device) -> None:
    """The text of a tensor on another device has that device's index, and the current device stays."""
    assert f"device='{device.other}'" in repr(torch.ones(3, device=device.other))
    assert torch.accelerator.current_device_index() == 0


def _words(text: str) -> str:
    """The text without line breaks; the name of a derivative is kept, its address is not."""
    return re.sub(r"\s+", " ", text)
