"""Saving, loading, pickling and copying tensors and modules of the device."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import safetensors.torch
import torch
from devices import DEVICE


def test_storage_methods():
    storage = torch.arange(4, dtype=torch.uint8, device=DEVICE).untyped_storage()
    assert storage.device == torch.device(f"{DEVICE}:0")
    assert (storage[2], storage.tolist(), storage.nbytes()) == (2, [0, 1, 2, 3], 4)
    assert storage.cpu().tolist() == [0, 1, 2, 3]
    assert storage.openreg(1).device == torch.device(f"{DEVICE}:1")
    storage.fill_(7)
    storage.resize_(8)
    assert storage.tolist()[:4] == [7, 7, 7, 7]
    assert len(storage) == 8


def test_byteswap_of_device_memory_is_refused():
    storage = torch.arange(4, device=DEVICE).untyped_storage()
    with pytest.raises(RuntimeError, match=r"openreg: byteswap needs a storage in host memory \(got openreg:0"):
        storage.byteswap(torch.int64)
    host = torch.tensor([1], dtype=torch.int16)
    host.untyped_storage().byteswap(torch.int16)
    assert host.item() == 256


def test_legacy_numpy_files_name_the_device():
    rebuild = torch._utils._rebuild_device_tensor_from_numpy
    x = rebuild(np.arange(3), torch.int64, f"{DEVICE}:1", False)
    assert x.device == torch.device(f"{DEVICE}:1")
    assert x.tolist() == [0, 1, 2]


def test_tensor_metadata_is_empty_by_default():
    assert torch._utils.get_tensor_metadata(torch.ones(1, device=DEVICE)) == {}


def test_tensor_metadata_is_kept_with_the_tensor_and_in_checkpoints():
    x = torch.ones(3, device=DEVICE)
    torch._utils.set_tensor_metadata(x, {"folded": True})
    assert torch._utils.get_tensor_metadata(x) == {"folded": True}
    assert torch._utils.get_tensor_metadata(x.detach()) == {"folded": True}
    assert torch._utils.get_tensor_metadata(x.clone()) == {}

    file = io.BytesIO()
    torch.save(x, file)
    for target, metadata in ((f"{DEVICE}:1", {"folded": True}), ("cpu", {})):
        file.seek(0)
        loaded = torch.load(file, map_location=target)
        assert loaded.device == torch.device(target)
        assert loaded.tolist() == [1, 1, 1]
        assert torch._utils.get_tensor_metadata(loaded) == metadata


@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_safetensors(tmp_path, device):
    dtypes = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.bool, torch.complex64)
    tensors = {str(dtype): torch.arange(6, device=device).to(dtype) for dtype in dtypes}
    tensors |= {"empty": torch.empty(0, 2, device=device), "scalar": torch.tensor(3, device=device)}
    safetensors.torch.save_file(tensors, tmp_path / "x.safetensors")
    # By its index: the names that the package takes for devices are its own.
    for where, expected in {"cpu": "cpu", torch.device(device).index: device}.items():
        loaded = safetensors.torch.load_file(tmp_path / "x.safetensors", device=where)
        assert loaded.keys() == tensors.keys()
        for name, tensor in loaded.items():
            assert tensor.device == torch.device(expected) and tensor.dtype == tensors[name].dtype
            assert torch.equal(tensor.cpu(), tensors[name].cpu())


def test_safetensors_of_a_model_with_shared_weights(tmp_path):
    model, loaded = (torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(2))) for _ in range(2))
    for each in (model, loaded):
        each[1].weight = each[0].weight
        each.to(DEVICE)
    safetensors.torch.save_model(model, tmp_path / "model.safetensors")
    assert safetensors.torch.load_model(loaded, tmp_path / "model.safetensors") == (set(), [])
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_a_leaf_and_its_gradient_are_copied():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    assert y.is_leaf and y.requires_grad
    assert y.grad.tolist() == [3, 3]
    assert y.grad.data_ptr() != x.grad.data_ptr()
