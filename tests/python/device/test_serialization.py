"""Saving, loading, pickling and copying tensors and modules of the device."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import safetensors.torch
import torch
from devices import DEVICE


def save_and_load(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


@pytest.mark.parametrize("index", [0, 1])
def test_a_tensor_comes_back_to_its_device(index):
    x = torch.arange(6.0, device=f"{DEVICE}:{index}").view(2, 3)
    y = save_and_load(x)
    assert y.device == x.device
    assert torch.equal(y, x)
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("target", ["cpu", f"{DEVICE}:1", torch.device(f"{DEVICE}:0"), {f"{DEVICE}:0": f"{DEVICE}:1"}])
def test_map_location_decides_where_it_goes(target):
    x = torch.arange(6, device=f"{DEVICE}:0")
    y = save_and_load(x, map_location=target)
    expected = torch.device(target[f"{DEVICE}:0"] if isinstance(target, dict) else target)
    assert y.device == expected
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_cpu_file_loads_onto_the_device():
    y = save_and_load(torch.arange(3), map_location=f"{DEVICE}:1")
    assert y.device == torch.device(f"{DEVICE}:1")
    assert y.tolist() == [0, 1, 2]


@pytest.mark.parametrize("options", [{"_use_new_zipfile_serialization": False}, {}])
def test_both_file_formats(options):
    file = io.BytesIO()
    torch.save({"a": torch.ones(2, device=DEVICE), "b": 3}, file, **options)
    file.seek(0)
    value = torch.load(file, weights_only=True)
    assert value["a"].device == torch.device(f"{DEVICE}:0")
    assert value["a"].tolist() == [1, 1]


def test_a_file_is_mapped_into_memory(tmp_path):
    torch.save(torch.arange(100, device=DEVICE), tmp_path / "x.pt")
    y = torch.load(tmp_path / "x.pt", map_location=f"{DEVICE}:1", mmap=True)
    assert y.device.index == 1
    assert y.sum().item() == 4950


def test_a_file_of_a_device_that_is_not_there_is_refused():
    file = io.BytesIO()
    torch.save(torch.ones(1, device=f"{DEVICE}:0"), file)
    data = file.getvalue().replace(b"openreg:0", b"openreg:7")
    with pytest.raises(RuntimeError, match=DEVICE):
        torch.load(io.BytesIO(data))


def test_views_keep_sharing_their_storage():
    x = torch.zeros(4, device=DEVICE)
    a, b = save_and_load((x, x[1:3]))
    b.fill_(5)
    assert a.tolist() == [0, 5, 5, 0]


def test_pickle_and_deepcopy():
    x = torch.arange(3, device=f"{DEVICE}:1")
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert y.device == x.device
        assert torch.equal(y, x)
        assert y.data_ptr() != x.data_ptr()


def test_a_leaf_and_its_gradient_are_copied():
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    (x * 3).sum().backward()
    y = copy.deepcopy(x)
    assert y.is_leaf and y.requires_grad
    assert y.grad.tolist() == [3, 3]
    assert y.grad.data_ptr() != x.grad.data_ptr()


def test_a_checkpoint_moves_between_the_devices():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2)).to(DEVICE)
    other = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    other.load_state_dict(save_and_load(model.state_dict(), map_location="cpu"))
    x = torch.randn(3, 4)
    torch.testing.assert_close(other(x), model(x.to(DEVICE)).cpu())


@pytest.mark.parametrize("index", [0, 1])
def test_location_tags(index):
    from torch.serialization import default_restore_location, location_tag

    assert location_tag(torch.UntypedStorage(4, device=f"{DEVICE}:{index}")) == f"{DEVICE}:{index}"
    restored = default_restore_location(torch.UntypedStorage(4), f"{DEVICE}:{index}")
    assert restored.is_openreg and restored.device.index == index


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
