"""Registration: the name of the device, its module, and the methods that carry the name.

A backend outside of PyTorch takes the slot `PrivateUse1`. When its library is loaded, it gives the slot a name
(`torch.utils.rename_privateuse1_backend`), registers a Python module of that name (`torch._register_device_module`) and
lets PyTorch add methods to tensors, modules and storages (`torch.utils.generate_methods_for_privateuse1_backend`), in
this order. An entry point in the group `torch.backends` makes `import torch` do all this.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import torch
from torch import nn

from backend_conformance import Device, Level, check, missing, not_applicable


@check(level=Level.BOOTS, hook="torch.utils.rename_privateuse1_backend")
def name_is_a_device_type(device: Device) -> None:
    """`torch.device` knows the name, with and without an index.

    PyTorch parses the names of devices in C++, from a table of its own device types; `PrivateUse1` has the name that
    the backend gives it. Until then every factory with `device="<name>"` raises.
    """
    assert torch.device(device.name).type == device.name
    assert torch.device(device.name).index is None
    assert str(torch.device(device.name, 0)) == f"{device.name}:0"
    assert torch.device(f"{device.name}:0") == torch.device(device.name, 0)


@check(level=Level.BOOTS, hook="torch.utils.rename_privateuse1_backend")
def slot_has_the_name(device: Device) -> None:
    """`PrivateUse1`, the slot of backends outside of PyTorch, has this backend's name.

    The name also decides under which name kernels report errors and profilers list the device. Only one backend of a
    process can take the slot: a second one finds its name refused.
    """
    if device.key != "PrivateUse1":
        not_applicable("the device is not in the slot of backends outside of PyTorch")
    assert torch._C._get_privateuse1_backend_name() == device.name


@check(level=Level.BOOTS, hook="torch._register_device_module")
def module_is_registered(device: Device) -> None:
    """`torch.<name>` is the device's module, and can be imported by that name.

    PyTorch looks up most of what it asks in Python there, and imports `torch.<name>` from C++ when the first tensor is
    made: without it even `torch.ones(2, device="<name>")` raises ModuleNotFoundError.
    """
    assert torch.get_device_module(device.name) is device.module
    assert importlib.import_module(f"torch.{device.name}") is device.module


@check(level=Level.BOOTS, hook="the key set of the tensors that the factories make")
def tensors_have_the_dispatch_key(device: Device) -> None:
    """A tensor of the device has the device's dispatch key and an autograd key.

    The dispatcher chooses kernels by the keys of the tensors. A factory that passes other keys makes tensors whose
    operators run other kernels, or without derivatives.
    """
    keys = torch._C._dispatch_keys(torch.empty(2, device=device.this))
    for key in (device.key, f"Autograd{device.key}", "ADInplaceOrView"):
        assert keys.has(torch._C._dispatch_key_parse(key)), f"a tensor of the device has the keys {keys}, not {key}"


@check(level=Level.TRAINS, hook="torch.utils.generate_methods_for_privateuse1_backend")
def tensors_have_the_methods(device: Device) -> None:
    """`Tensor.<name>()` moves a tensor to the device, and `Tensor.is_<name>` tells where it is.

    The counterparts of `Tensor.cuda()` and `Tensor.is_cuda`.
    """
    _require(torch.Tensor, device.name, f"is_{device.name}")
    host = torch.tensor([1.0, 2.0])
    move: Any = getattr(host, device.name)
    for moved in (move(), move(0), move(device.this)):
        assert moved.device == device.this
        assert getattr(moved, f"is_{device.name}") is True
        device.cpu_equal(moved, [1.0, 2.0])
    assert getattr(host, f"is_{device.name}") is False


@check(level=Level.TRAINS, hook="torch.utils.generate_methods_for_privateuse1_backend")
def modules_have_the_method(device: Device) -> None:
    """`Module.<name>()` moves parameters and buffers, and returns the module.

    The counterpart of `Module.cuda()`.
    """
    _require(nn.Module, device.name)
    linear = nn.Linear(2, 3)
    module = nn.Sequential(linear, nn.BatchNorm1d(3))
    expected = linear.weight.detach().clone()
    move: Any = getattr(module, device.name)
    assert move() is module
    assert {each.device for each in module.state_dict().values()} == {device.this}
    device.cpu_equal(linear.weight, expected)


@check(level=Level.COMPLETE, hook="torch.utils.generate_methods_for_privateuse1_backend")
def packed_sequences_have_the_methods(device: Device) -> None:
    """`PackedSequence.<name>()` and `PackedSequence.is_<name>` exist, as for CUDA.

    Programs with recurrent networks move their packed batches by it.
    """
    packed = nn.utils.rnn.pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    _require(type(packed), device.name, f"is_{device.name}")
    moved = getattr(packed, device.name)()
    assert getattr(moved, f"is_{device.name}") is True and getattr(packed, f"is_{device.name}") is False
    device.cpu_equal(moved.data, packed.data)
    assert moved.batch_sizes.device.type == "cpu", "the batch sizes belong on the host"


@check(level=Level.COMPLETE, hook="torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)")
def storages_have_the_methods(device: Device) -> None:
    """`UntypedStorage.<name>()` and `UntypedStorage.is_<name>` exist, as for CUDA.

    PyTorch adds them only if the argument `for_storage` is true, which is not the default.
    """
    if device.key != "PrivateUse1":
        not_applicable("PyTorch adds these methods to storages of backends outside of it only")
    _require(torch.UntypedStorage, device.name, f"is_{device.name}")
    host = torch.tensor([1, 2, 3], dtype=torch.uint8).untyped_storage()
    moved = getattr(host, device.name)()
    assert moved.device == device.this
    assert getattr(moved, f"is_{device.name}") is True and getattr(host, f"is_{device.name}") is False
    assert moved.cpu().tolist() == [1, 2, 3]


@check(level=Level.COMPLETE, hook="torch._register_device_module")
def types_have_the_name(device: Device) -> None:
    """`Tensor.type()` is `torch.<name>.FloatTensor`, and converts.

    Older programs and files of checkpoints compare these strings.
    """
    found = torch.ones(2, device=device.this).type()
    assert found == f"torch.{device.name}.FloatTensor", f"the type of a float32 tensor is {found}"
    assert torch.ones(2, device=device.this, dtype=torch.int64).type() == f"torch.{device.name}.LongTensor"
    converted = torch.ones(2, device=device.this).type(torch.int32)
    assert converted.device == device.this and converted.dtype == torch.int32


@check(level=Level.TRAINS, hook='an entry point in the group "torch.backends"', timeout=120.0)
def import_alone_loads_the_backend(device: Device) -> None:
    """`import torch` loads the backend, so that programs need no other import.

    PyTorch calls the entry points of the group `torch.backends` at the end of its own import. Without one, programs
    must import the package of the backend, and the processes that they start must, too.
    """
    program = f"import torch; print(torch.ones(2, device={device.name!r}).sum().item())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    if ended.returncode:
        reason = ended.stderr.strip().splitlines()[-1:] or [f"exit status {ended.returncode}"]
        missing(f"a program that only imports torch cannot use the device: {reason[0]}")
    assert ended.stdout.split()[-1] == "2.0"


@check(level=Level.COMPLETE, hook="is_initialized of the module", timeout=120.0)
def import_does_not_initialise_the_device(device: Device) -> None:
    """The import, and questions whether the device exists, do not initialise it.

    A program that only asks should not pay for the device, and what it forks should still be able to use it.
    Fake tensors and device meshes call `is_initialized()` of the module.
    """
    printed = device.output(
        f"module = torch.{device.name}\n"
        "torch.accelerator.is_available(), torch.accelerator.device_count(), module.is_available()\n"
        "before = module.is_initialized()\n"
        f"torch.ones(2, device={device.name!r})\n"
        "print(before, module.is_initialized())",
        timeout=100,
    )
    assert printed.split() == ["False", "True"], f"is_initialized() before and after the first use: {printed}"


def _require(owner: type, *names: str) -> None:
    for name in names:
        if not hasattr(owner, name):
            missing(f"{owner.__name__} has no attribute {name!r}")
