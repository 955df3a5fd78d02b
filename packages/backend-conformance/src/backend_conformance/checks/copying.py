"""Copies of Python's objects: `copy`, `pickle`, and what moves modules and parameters.

`copy.deepcopy` of a tensor copies its storage and sets the copy's tensor to it (`aten::set_`); pickle goes through
the same functions as `torch.save`. `Module.to` changes parameters in place if the tensors of both devices are
compatible (`aten::_has_compatible_shallow_copy_type`).
"""

from __future__ import annotations

import copy
import pickle

import torch
from torch import nn

from backend_conformance import Device, Level, check, not_applicable
from backend_conformance.evidence import has_numpy, refused


@check(level=Level.TRAINS, hook="UntypedStorage.clone, aten::set_.source_Storage_storage_offset")
def deep_copies_have_memory_of_their_own(device: Device) -> None:
    """`copy.deepcopy` gives a tensor with the values, strides and device, and with other memory."""
    for where in (device.this, device.at(device.count - 1)):
        x = torch.arange(12.0, device=where).view(3, 4)[1:].t()
        found = copy.deepcopy(x)
        assert found.device == where and found.stride() == x.stride()
        device.cpu_equal(found, torch.arange(12.0).view(3, 4)[1:].t())
        found.zero_()
        device.cpu_equal(x, torch.arange(12.0).view(3, 4)[1:].t())


@check(level=Level.TRAINS, hook="UntypedStorage.clone")
def deep_copies_keep_what_is_shared(device: Device) -> None:
    """Tensors that share memory share that of the copy, if they are copied together."""
    base = torch.zeros(4, device=device.this)
    found = copy.deepcopy({"base": base, "view": base[2:], "again": base})
    assert found["again"] is found["base"]
    found["base"].fill_(3)
    device.cpu_equal(found["view"], [3.0, 3.0])
    device.cpu_equal(base, [0.0] * 4)


@check(level=Level.TRAINS, hook="aten::clone of parameters")
def modules_and_optimizers_can_be_copied(device: Device) -> None:
    """`copy.deepcopy` of a module has parameters and buffers of its own; one of an optimizer has its state."""
    module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).to(device.this)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    module(torch.randn(4, 2, device=device.this)).square().sum().backward()
    optimizer.step()
    found, (found_again, found_optimizer) = copy.deepcopy(module), copy.deepcopy((module, optimizer))
    for one, two in zip(module.parameters(), found.parameters(), strict=True):
        assert isinstance(two, nn.Parameter) and two.requires_grad and two.device == device.this
        assert one.data_ptr() != two.data_ptr()
        device.cpu_equal(two, one.detach().cpu())
    before = [each.detach().cpu().clone() for each in module.parameters()]
    for each in found_again.parameters():
        each.grad = torch.ones_like(each)
    found_optimizer.step()
    for each, expected in zip(module.parameters(), before, strict=True):
        device.cpu_equal(each, expected)
    assert any(
        not torch.equal(each.detach().cpu(), value)
        for each, value in zip(found_again.parameters(), before, strict=True)
    )


@check(level=Level.TRAINS, hook="aten::_has_compatible_shallow_copy_type")
def module_keeps_its_parameters_when_it_moves(device: Device) -> None:
    """`Module.to` moves the parameters that an optimizer already has.

    If the tensors of the CPU and of the device are not compatible, `Module.to` makes new parameters: an optimizer
    that was made before keeps the old ones, and training changes nothing.
    """
    module = nn.Linear(2, 2)
    weight = module.weight
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    module.to(device.this)
    assert module.weight is weight, "Module.to makes a new parameter"
    assert weight.device == device.this
    before = weight.detach().cpu().clone()
    module(torch.ones(1, 2, device=device.this)).sum().backward()
    optimizer.step()
    device.cpu_equal(weight, before - 1)
    module.cpu()
    assert module.weight is weight and weight.device.type == "cpu"


@check(level=Level.TRAINS, hook="aten::_has_compatible_shallow_copy_type")
def data_of_a_tensor_can_be_exchanged(device: Device) -> None:
    """`tensor.data = other` takes the memory of the other tensor, also between the CPU and the device."""
    parameter = nn.Parameter(torch.zeros(2))
    there = torch.tensor([1.0, 2.0], device=device.this)
    parameter.data = there
    assert parameter.device == device.this and parameter.data_ptr() == there.data_ptr()
    (parameter * 3).sum().backward()
    assert parameter.grad is not None
    device.cpu_equal(parameter.grad, [3.0, 3.0])
    parameter.grad = None
    parameter.data = torch.tensor([5.0])
    assert parameter.device.type == "cpu" and parameter.tolist() == [5.0]


@check(level=Level.TRAINS, hook="aten::set_.source_Storage_storage_offset")
def pickles_have_the_values(device: Device) -> None:
    """`pickle` of tensors, parameters and modules has values, strides, device and gradients' requirement."""
    x = torch.arange(6.0, device=device.this).view(2, 3)[:, 1:]
    found = pickle.loads(pickle.dumps(x))
    assert found.device == device.this and found.stride() == x.stride()
    device.cpu_equal(found, [[1.0, 2.0], [4.0, 5.0]])
    module = pickle.loads(pickle.dumps(nn.Linear(2, 1).to(device.this).requires_grad_(False)))
    assert module.weight.device == device.this and not module.weight.requires_grad
    assert pickle.loads(pickle.dumps(device.this)) == device.this


@check(level=Level.COMPLETE, hook="device of the module", timeout=120.0)
def pickles_can_be_read_by_another_process(device: Device) -> None:
    """A pickle of one process gives the tensor, on the device, in another."""
    last = device.at(device.count - 1)
    pickled = pickle.dumps(torch.arange(4.0, device=last))
    program = f"import pickle\nfound = pickle.loads({pickled!r})\nprint(found.device, found.tolist())"
    assert device.output(program, timeout=100).strip() == f"{last} [0.0, 1.0, 2.0, 3.0]"


@check(level=Level.TRAINS, hook="aten::empty_strided, aten::_copy_from")
def clones_keep_the_layout(device: Device) -> None:
    """`clone()` and `to(copy=True)` keep dense strides, have other memory, and carry derivatives."""
    x = torch.arange(120.0, device=device.this).view(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    for found in (x.clone(), x.to(device.this, copy=True)):
        assert found.stride() == x.stride() and found.data_ptr() != x.data_ptr()
        assert found.requires_grad
        device.cpu_equal(found, x.detach().cpu())
    assert x.to(device.this) is x, "to() of the device that a tensor is on makes a copy"
    assert x.clone(memory_format=torch.contiguous_format).is_contiguous()
    x.clone().sum().backward()
    assert x.grad is not None
    device.cpu_equal(x.grad, torch.ones(2, 3, 4, 5))


@check(level=Level.TRAINS, hook="aten::to.dtype_layout through the module")
def modules_take_a_dtype_and_a_device(device: Device) -> None:
    """`Module.to(device, dtype)` converts floating parameters only; `to_empty` moves a module of `meta`."""
    module = nn.Sequential(nn.Embedding(4, 2), nn.BatchNorm1d(2)).to(device.this, torch.bfloat16)
    types = {name: each.dtype for name, each in module.state_dict().items()}
    assert types["0.weight"] == torch.bfloat16 and types["1.num_batches_tracked"] == torch.int64
    with torch.device("meta"):
        abstract = nn.Linear(3, 2)
    found = abstract.to_empty(device=device.this)
    found.load_state_dict(nn.Linear(3, 2).state_dict())
    assert found.weight.device == device.this
    refused(lambda: nn.Linear(3, 2, device="meta").to(device.this), "values of a tensor that has none")


@check(level=Level.BOOTS, hook="Tensor.__array__")
def numpy_refuses_device_memory(device: Device) -> None:
    """`numpy()` of a tensor of the device raises TypeError and advises `cpu()`, instead of reading device memory."""
    if not has_numpy():
        not_applicable("NumPy is not installed")
    x = torch.ones(3, device=device.this)
    error = refused(x.numpy, "numpy() of a tensor of the device", TypeError, RuntimeError)
    assert "cpu" in str(error), f"the error does not say what to do: {error}"
    refused(x.__array__, "an array of a tensor of the device", TypeError, RuntimeError)
    assert x.cpu().numpy().tolist() == [1.0, 1.0, 1.0]


@check(level=Level.COMPLETE, hook="Tensor.share_memory_")
def sharing_memory_of_the_device_changes_nothing(device: Device) -> None:
    """`share_memory_()` of a tensor and a module leaves values and device, as it does for CUDA.

    Programs call it on models before they start processes.
    """
    x = torch.arange(3.0, device=device.this)
    assert x.share_memory_() is x
    device.cpu_equal(x, [0.0, 1.0, 2.0])
    module = nn.Linear(2, 2).to(device.this).share_memory()
    assert module.weight.device == device.this
