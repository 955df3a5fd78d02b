"""Factories: how tensors of the device are made, and how their elements are read.

Most factories call `empty` and an in-place operator. The device may come from `device=`, from another tensor, from
the context `with torch.device(...)`, or from `torch.set_default_device`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from backend_conformance import Device, Level, check

FACTORIES: dict[str, Callable[[str], torch.Tensor]] = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones((), device=d, dtype=torch.int32),
    "full": lambda d: torch.full((2,), 7, device=d),
    "arange": lambda d: torch.arange(1, 8, 2, device=d),
    "arange_float": lambda d: torch.arange(0, 1, 0.25, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 5, device=d),
    "logspace": lambda d: torch.logspace(0, 2, 3, device=d),
    "eye": lambda d: torch.eye(3, 4, device=d),
    "tensor": lambda d: torch.tensor([[1.5, 2.0], [3.0, 4.0]], device=d),
    "tensor_bool": lambda d: torch.tensor([True, False], device=d),
    "as_tensor": lambda d: torch.as_tensor([1, 2, 3], device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(3.0, device=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(2, 2), device=d),
    "full_like": lambda d: torch.full_like(torch.ones(2, device=d), 5),
    "new_tensor": lambda d: torch.ones(1, device=d).new_tensor([1.0, 2.0]),
    "new_zeros": lambda d: torch.ones(1, device=d).new_zeros(3),
    "new_full": lambda d: torch.ones(1, device=d).new_full((2,), 4.0),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "triu_indices": lambda d: torch.triu_indices(3, 4, device=d),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.ones(2, device=d) * 2),
    "hann_window": lambda d: torch.hann_window(8, device=d),
    "bartlett_window": lambda d: torch.bartlett_window(5, device=d),
    "vander": lambda d: torch.vander(torch.arange(3.0, device=d)),
    "cat": lambda d: torch.cat([torch.ones(1, device=d), torch.zeros(2, device=d)]),
    "one_hot": lambda d: torch.nn.functional.one_hot(torch.tensor([0, 2], device=d), 3),
    "meshgrid": lambda d: torch.meshgrid(torch.arange(2, device=d), torch.arange(3, device=d), indexing="ij")[1],
}


@check(level=Level.BOOTS, hook="aten::empty.memory_format", cases=tuple(FACTORIES))
def factory_makes_the_values_of_the_cpu(device: Device, case: str) -> None:
    """A factory gives the CPU's values, dtype and strides, on the device.

    Factories without a tensor argument reach the backend through `device=` only.
    """
    made, expected = FACTORIES[case](device.name), FACTORIES[case]("cpu")
    assert made.device == device.this, f"the tensor is on {made.device}"
    assert made.dtype == expected.dtype and made.stride() == expected.stride()
    device.cpu_equal(made, expected)


@check(level=Level.BOOTS, hook="the device's name")
def device_comes_from_the_context(device: Device) -> None:
    """`with torch.device(...)` and `torch.set_default_device` make factories use the device.

    PyTorch adds `device=` to the calls of the factories that it lists.
    """
    with torch.device(device.name):
        assert {made.device for made in (torch.ones(2), torch.arange(3), torch.tensor([1]))} == {device.this}
        assert torch.nn.Linear(2, 2).weight.device == device.this
        assert torch.ones(2, device="cpu").device.type == "cpu"
    assert torch.ones(2).device.type == "cpu"
    torch.set_default_device(device.name)
    try:
        assert torch.zeros(2).device == device.this
        assert torch.get_default_device() == device.this or torch.get_default_device() == torch.device(device.name)
    finally:
        torch.set_default_device(None)
    assert torch.zeros(2).device.type == "cpu"


@check(level=Level.BOOTS, hook="aten::index.Tensor, index_put_, masked_select, nonzero")
def indexing_follows_the_cpu(device: Device) -> None:
    """Indexing with slices, masks, lists and tensors, and assignments to it, give the CPU's results.

    Index tensors may be on the CPU, too. Masks have results of a size that only the device knows.
    """
    here = torch.arange(24.0).view(4, 6)
    rows, columns = torch.tensor([2, 0, -1]), torch.tensor([1, 5, 3])
    reads: tuple[Callable[[torch.Tensor, Callable[[torch.Tensor], torch.Tensor]], torch.Tensor], ...] = (
        lambda x, on: x[on(rows)],
        lambda x, on: x[on(rows), on(columns)],
        lambda x, on: x[:, on(columns)],
        lambda x, on: x[rows],
        lambda x, on: x[x > 7],
        lambda x, on: x[on(torch.tensor([True, False, True, False]))],
        lambda x, on: x[[0, 2], 1:],
        lambda x, on: x[..., None, -1],
        lambda x, on: x[on(rows)[:, None], on(columns)[None]],
        lambda x, on: x[on(torch.zeros(0, dtype=torch.int64))],
    )
    for read in reads:
        device.cpu_equal(read(here.to(device.this), lambda i: i.to(device.this)), read(here, lambda i: i))

    def written(x: torch.Tensor) -> torch.Tensor:
        where = x.device
        x[rows.to(where)] = 1.0
        x[x > 20] = -1.0
        x[:, columns.to(where)] += torch.arange(3.0, device=where)
        x[1, ::2] = torch.tensor([7.0, 8.0, 9.0], device=where)
        x.index_put_((torch.tensor([0, 0], device=where),), torch.tensor(2.0, device=where), accumulate=True)
        x[3] = 5
        return x

    device.cpu_equal(written(here.to(device.this)), written(here.clone()))
