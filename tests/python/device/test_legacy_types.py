"""``torch.openreg.FloatTensor``, ``FloatStorage`` and the others that old programs use."""

from __future__ import annotations

import pytest
import torch
from torch.openreg.legacy import TYPES

TENSORS = [kind for name, kind in TYPES.items() if name.endswith("Tensor")]
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def test_they_are_those_of_cuda():
    assert set(TYPES) == {name for name in torch.cuda.__all__ if name.endswith(("Storage", "Tensor"))}


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_type_makes_tensors_and_recognizes_them(kind):
    made = kind([0, 1])
    assert made.tolist() == [0, 1] and made.device == torch.device("openreg:0")
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


def test_it_makes_tensors_on_the_current_device():
    with torch.openreg.device(1):
        assert torch.openreg.FloatTensor(2).device.index == 1


def test_a_storage_has_its_type():
    tensor = torch.tensor([1.0, 2.0], device="openreg")
    assert tensor.storage_type() is torch.openreg.FloatStorage
    assert tensor.storage().type() == "torch.openreg.FloatStorage"
    made = torch.openreg.HalfStorage([1, 2, 3])
    assert made.device.type == "openreg" and made.dtype == torch.float16 and made.tolist() == [1, 2, 3]
    assert isinstance(tensor.storage(), torch.openreg.FloatStorage)
    assert not isinstance(tensor.storage(), torch.openreg.HalfStorage)
