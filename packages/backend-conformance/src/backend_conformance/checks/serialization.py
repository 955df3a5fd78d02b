"""Serialization: `torch.save` and `torch.load`.

A storage is written through `storage.cpu()`, with a location such as `<name>:0`. `torch.load` recognises the
location, asks the module whether the device is there (`is_available`, `device_count`), and moves the storage inside
`torch.<name>.device(...)`, which gets a `torch.device`.
"""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from backend_conformance import Device, Level, check, vacuous, wrong
from backend_conformance.evidence import refused

_DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64", "bool", "complex64", "float64")


@check(level=Level.TRAINS, hook="device, is_available, device_count of the module")
def tensors_return_to_their_device(device: Device) -> None:
    """A tensor that was saved is loaded to the device, with the index, that it was on."""
    last = device.at(device.count - 1)
    found = _round_trip({"first": torch.arange(3.0, device=device.this), "last": torch.arange(4, device=last)})
    assert found["first"].device == device.this and found["last"].device == last
    device.cpu_equal(found["first"], [0.0, 1.0, 2.0])
    device.cpu_equal(found["last"], [0, 1, 2, 3])
    assert torch.accelerator.current_device_index() == 0, "torch.load changes the current device"


@check(level=Level.TRAINS, hook="device of the module")
def location_can_be_mapped(device: Device) -> None:
    """`map_location` takes a name, a device, a dictionary and a function, for the CPU and for the device."""
    last = device.at(device.count - 1)
    saved = _saved(torch.arange(3.0, device=device.this))
    places: list[tuple[Any, torch.device]] = [
        ("cpu", torch.device("cpu")),
        (torch.device("cpu"), torch.device("cpu")),
        (device.name, device.this),
        (str(last), last),
        (last, last),
        ({str(device.this): str(last)}, last),
        (lambda storage, location: storage, torch.device("cpu")),
    ]
    for place, expected in places:
        found = torch.load(io.BytesIO(saved), map_location=place, weights_only=True)
        assert found.device == expected, f"map_location={place!r} gives a tensor on {found.device}"
        torch.testing.assert_close(found.cpu(), torch.arange(3.0))
    found = torch.load(io.BytesIO(_saved(torch.arange(3.0))), map_location=device.name, weights_only=True)
    assert found.device == device.this
    device.cpu_equal(found, [0.0, 1.0, 2.0])


@check(level=Level.TRAINS, hook="aten::_copy_from", cases=_DTYPES)
def dtypes_are_kept(device: Device, case: str) -> None:
    """A saved tensor has its dtype and all its bits after it was loaded."""
    dtype = getattr(torch, case)
    x = torch.tensor([0, 1, 1, 0, 5]).to(dtype).to(device.this)
    found = _round_trip(x)
    assert found.dtype == dtype and found.device == x.device
    device.cpu_equal(found, x.cpu())


@check(level=Level.TRAINS, hook="aten::set_.source_Storage_storage_offset")
def views_stay_views_of_one_storage(device: Device) -> None:
    """Tensors that share a storage share it after they were loaded, with their offsets and strides."""
    base = torch.arange(12.0, device=device.this).view(3, 4)
    found = _round_trip([base, base[1:, ::2], base.t()])
    assert found[1].storage_offset() == 4 and found[1].stride() == (4, 2) and found[2].stride() == (1, 4)
    device.cpu_equal(found[1], [[4.0, 6.0], [8.0, 10.0]])
    found[0].zero_()
    device.cpu_equal(found[1], torch.zeros(2, 2))
    device.cpu_equal(found[2], torch.zeros(4, 3))
    device.cpu_equal(base, torch.arange(12.0).view(3, 4))


@check(level=Level.TRAINS, hook="device of the module")
def training_goes_on_from_a_checkpoint(device: Device) -> None:
    """The states of a model and an optimizer, saved and loaded, continue as without the interruption."""
    torch.manual_seed(0)
    data = [(torch.randn(16, 4), torch.randint(0, 3, (16,))) for _ in range(6)]

    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, batches: list[Any]) -> None:
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device.this)), y.to(device.this)).backward()
            optimizer.step()

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device.this)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    steps(model, optimizer, data[:3])
    saved = _saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    steps(model, optimizer, data[3:])
    again = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device.this)
    optimizer = torch.optim.Adam(again.parameters(), lr=0.05)
    loaded = torch.load(io.BytesIO(saved), weights_only=True)
    again.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    steps(again, optimizer, data[3:])
    for expected, found in zip(model.parameters(), again.parameters(), strict=True):
        device.cpu_equal(found, expected.detach().cpu())


@check(level=Level.TRAINS, hook="aten::_copy_from")
def parameters_and_buffers_are_kept(device: Device) -> None:
    """A saved module keeps what is a parameter, what requires a gradient, and its buffers."""
    module = nn.BatchNorm1d(3).to(device.this)
    module.bias.requires_grad_(False)
    module(torch.randn(8, 3, device=device.this))
    found = _round_trip(module, weights_only=False)
    assert isinstance(found.weight, nn.Parameter) and found.weight.requires_grad and not found.bias.requires_grad
    for name, expected in module.state_dict().items():
        assert found.state_dict()[name].device == device.this
        device.cpu_equal(found.state_dict()[name], expected.cpu())


@check(level=Level.TRAINS, hook="aten::_copy_from from mapped memory")
def files_can_be_mapped(device: Device) -> None:
    """`torch.load(mmap=True)` reads a file to the device, from memory that is mapped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved"
        torch.save({"x": torch.arange(100_000.0, device=device.this)}, path)
        found = torch.load(path, mmap=True, map_location=device.name, weights_only=True)["x"]
        assert found.device == device.this
        device.cpu_equal(found, torch.arange(100_000.0))


@check(level=Level.ASYNCHRONOUS, hook="UntypedStorage.cpu: wait for the stream", needs=("streams",))
def work_before_the_save_is_in_the_file(device: Device) -> None:
    """`torch.save` writes what the operators before it compute, though they have not run yet."""
    x = torch.zeros(1000, device=device.this)
    if not device.enough_work():
        vacuous("the host was never seen to run ahead of the device")
    x.fill_(5.0)
    found = torch.load(io.BytesIO(_saved(x)), map_location="cpu", weights_only=True)
    torch.testing.assert_close(found, torch.full((1000,), 5.0))


@check(level=Level.COMPLETE, hook="device_count of the module")
def absent_devices_are_refused(device: Device) -> None:
    """Loading to an index without a device raises a clear error; loading to the CPU still works."""
    saved = _saved(torch.ones(2, device=device.this))
    refused(
        lambda: torch.load(io.BytesIO(saved), map_location=f"{device.name}:{device.count}", weights_only=True),
        f"loading to device {device.count} of {device.count}",
    )
    assert torch.load(io.BytesIO(saved), map_location="cpu", weights_only=True).tolist() == [1.0, 1.0]


@check(level=Level.COMPLETE, hook="the location of storages: torch.serialization.location_tag")
def location_is_the_name_and_the_index(device: Device) -> None:
    """`torch.serialization.location_tag` of a storage is `<name>:0`."""
    for where in (device.this, device.at(device.count - 1)):
        found = torch.serialization.location_tag(torch.ones(1, device=where).untyped_storage())
        assert found == str(where), f"the location of a storage on {where} is {found!r}"


@check(level=Level.COMPLETE, hook="the location of storages", timeout=120.0)
def files_can_be_read_without_the_backend(device: Device) -> None:
    """A process without the backend loads the file to the CPU.

    Models are trained on one machine and used on another.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saved"
        torch.save(
            {"module": nn.Linear(2, 2).to(device.this).state_dict(), "x": torch.arange(3.0, device=device.this)}, path
        )
        program = (
            "import sys, torch\n"
            "found = torch.load(sys.argv[1], map_location='cpu', weights_only=True)\n"
            "print(found['x'].tolist(), found['module']['weight'].device)"
        )
        environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        ended = subprocess.run(
            [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=100, env=environment
        )
    if ended.returncode:
        wrong((ended.stderr.strip().splitlines() or ["no message"])[-1])
    assert ended.stdout.strip() == "[0.0, 1.0, 2.0] cpu"


@check(level=Level.COMPLETE, hook="UntypedStorage of the device")
def older_files_can_be_written_and_read(device: Device) -> None:
    """The format before zip files works, too."""
    file = io.BytesIO()
    x = torch.arange(6.0, device=device.this).view(2, 3).t()
    torch.save([x, x[1:]], file, _use_new_zipfile_serialization=False)
    file.seek(0)
    found = torch.load(file, weights_only=True)
    assert found[0].device == device.this and found[0].stride() == x.stride()
    device.cpu_equal(found[0], x.cpu())
    found[0].zero_()
    device.cpu_equal(found[1], torch.zeros(2, 2))


@check(level=Level.COMPLETE, hook="aten::_copy_from of lazily conjugated and negated tensors")
def lazy_conjugation_is_kept(device: Device) -> None:
    """A lazily conjugated view is loaded as what it was."""
    x = torch.tensor([1 + 2j, 3 - 1j], device=device.this).conj()
    found = _round_trip(x)
    assert found.device == device.this
    device.cpu_equal(found.resolve_conj(), torch.tensor([1 - 2j, 3 + 1j]))


@check(level=Level.COMPLETE, hook="getPinnedMemoryAllocator and asynchronous copies to the host")
def pinned_memory_can_be_used_to_save(device: Device) -> None:
    """With `torch.utils.serialization.config.save.use_pinned_memory_for_d2h` the file is the same."""
    config: Any = importlib.import_module("torch.utils.serialization.config")

    x = {f"tensor {number}": torch.full((10_000,), float(number), device=device.this) for number in range(8)}
    with config.patch({"save.use_pinned_memory_for_d2h": True}):
        found = _round_trip(x)
    for number, each in enumerate(found.values()):
        device.cpu_equal(each, torch.full((10_000,), float(number)))


def _saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _round_trip(value: object, weights_only: bool = True) -> Any:
    return torch.load(io.BytesIO(_saved(value)), weights_only=weights_only)
