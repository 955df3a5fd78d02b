"""``torch.openreg.FloatTensor``, ``FloatStorage`` and the others that old programs use."""

from __future__ import annotations

import warnings

import pytest
import torch
from devices import DEVICE
from torch.openreg import legacy
from torch.openreg.legacy import TYPES

TENSORS = [kind for name, kind in TYPES.items() if name.endswith("Tensor")]
ADVICE = r"The torch\.openreg\.\*DtypeTensor constructors are no longer recommended.*device='openreg'"
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated", f"ignore:{ADVICE}")


def test_they_are_those_of_cuda():
    assert set(TYPES) == {name for name in torch.cuda.__all__ if name.endswith(("Storage", "Tensor"))}


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_type_makes_tensors_and_recognizes_them(kind):
    made = kind([0, 1])
    assert made.tolist() == [0, 1] and made.device == torch.device(f"{DEVICE}:0")
    assert isinstance(made, kind) and not isinstance(made.cpu(), kind)
    assert [each for each in TENSORS if isinstance(made, each)] == [kind]
    assert kind(2, 3).shape == (2, 3) and kind().shape == (0,)


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_is_converted_to_a_type_or_its_name(kind):
    name = f"torch.openreg.{kind.__name__}"
    assert repr(kind) == f"<class '{name}'>"
    for given in (kind, name):
        made = torch.ones(2).type(given)
        assert made.type() == name and isinstance(made, kind)


def test_the_first_tensor_that_a_type_makes_gives_the_warning_of_cuda_s_types(monkeypatch):
    monkeypatch.setattr(legacy, "_has_advised", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ones = torch.ones(2, device=DEVICE)
        assert isinstance(ones, torch.openreg.FloatTensor) and ones.type(torch.openreg.HalfTensor).sum().item() == 2
    with pytest.warns(UserWarning, match=ADVICE) as given:
        torch.openreg.FloatTensor([0])
        torch.openreg.DoubleTensor([0])
    assert [warning.filename for warning in given] == [__file__]
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match=ADVICE), pytest.raises(TypeError):
            torch.openreg.FloatTensor(1.5)
    finally:
        torch.set_warn_always(False)


def test_it_makes_tensors_on_the_current_device():
    with torch.accelerator.device_index(1):
        assert torch.openreg.FloatTensor(2).device.index == 1


def test_it_takes_a_device_a_storage_or_a_tensor_of_its_kind():
    make = torch.openreg.FloatTensor
    assert make(2, device=f"{DEVICE}:1").device == make([1], device=f"{DEVICE}:1").device == torch.device(f"{DEVICE}:1")
    assert make(torch.ones(2, device=f"{DEVICE}:1")).device == torch.device(f"{DEVICE}:1")
    tensor = torch.ones(2, device=DEVICE)
    assert make(tensor).data_ptr() == make(tensor.untyped_storage()).data_ptr() == tensor.data_ptr()
    assert make(size=(2, 3)).shape == (2, 3) and make.layout is torch.strided and not make.is_sparse


def test_it_refuses_what_belongs_to_another_device():
    make = torch.openreg.FloatTensor
    with pytest.raises(RuntimeError, match="expects device type: openreg but device type: cpu was passed"):
        make(2, device="cpu")
    for tensor in (torch.ones(2), torch.ones(2, dtype=torch.float64, device=DEVICE)):
        with pytest.raises(TypeError, match=r"expected TensorOptions\(dtype=float, device=openreg"):
            make(tensor)
    with pytest.raises(RuntimeError, match="the devices must match"):
        make(torch.ones(2).untyped_storage())


@pytest.mark.filterwarnings("ignore:torch.set_default_tensor_type")
def test_it_is_the_default_tensor_type():
    default = torch.FloatTensor
    try:
        for given in (torch.openreg.HalfTensor, "torch.openreg.HalfTensor"):
            torch.set_default_tensor_type(given)
            assert torch.tensor([0.5]).type() == torch.empty(2).type() == "torch.openreg.HalfTensor"
            assert torch.arange(2).device.type == torch.get_default_device().type == DEVICE
            torch.set_default_tensor_type(default)
            assert torch.empty(2).type() == "torch.FloatTensor" and torch.get_default_device().type == "cpu"
        for wrong in (torch.openreg.LongTensor, torch.openreg.FloatStorage, "torch.openreg.FloatStorage"):
            with pytest.raises(TypeError, match="only floating-point types are supported"):
                torch.set_default_tensor_type(wrong)
        with pytest.raises(AttributeError, match="nonsense"):
            torch.set_default_tensor_type("torch.openreg.nonsense")
        assert torch.empty(2).type() == "torch.FloatTensor"
    finally:
        torch.set_default_tensor_type(default)


def test_a_default_tensor_type_is_advised_against():
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="set_default_tensor_type.. is deprecated"):
            torch.set_default_tensor_type(torch.openreg.FloatTensor)
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
        torch.set_warn_always(always)


def test_a_storage_has_its_type():
    tensor = torch.tensor([1.0, 2.0], device=DEVICE)
    assert tensor.storage_type() is torch.openreg.FloatStorage
    assert tensor.storage().type() == "torch.openreg.FloatStorage"
    made = torch.openreg.HalfStorage([1, 2, 3])
    assert made.device.type == DEVICE and made.dtype == torch.float16 and made.tolist() == [1, 2, 3]
    assert isinstance(tensor.storage(), torch.openreg.FloatStorage)
    assert not isinstance(tensor.storage(), torch.openreg.HalfStorage)


def test_storages_in_host_memory_are_refused():
    for call in (
        lambda: torch.openreg.FloatStorage.from_buffer(b"1234", "native"),
        lambda: torch.openreg.FloatStorage._new_with_weak_ptr(1),
        lambda: torch.openreg.FloatStorage._new_shared_filename(b"", b"", 1),
    ):
        with pytest.raises(RuntimeError, match=r"openreg: .* is not available for storages of the device"):
            call()
