"""Sparse tensors of all layouts: what the CPU does with them, the device does."""

from __future__ import annotations

import copy
import io
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from slices import one_in

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")

from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = [
    pytest.mark.any_device,
    pytest.mark.filterwarnings(
        "ignore:Sparse:UserWarning", "ignore:.*sparse.*:UserWarning", "ignore:ComplexHalf:UserWarning"
    ),
]

LAYOUTS = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}
DENSE = torch.tensor([[0, 1.5, 0, 0], [2, 0, 0, -3], [0, 0, 0, 4], [5, 0, 0, 0]])


def sparse(layout: str, dense: torch.Tensor = DENSE) -> torch.Tensor:
    return dense.to_sparse(layout=LAYOUTS[layout], blocksize=(2, 2) if layout.startswith("b") else None)


def parts(t: torch.Tensor) -> list[torch.Tensor]:
    """Indices and values."""
    if t.layout is torch.sparse_coo:
        return [t._indices(), t._values()]
    if t.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [t.crow_indices(), t.col_indices(), t.values()]
    return [t.ccol_indices(), t.row_indices(), t.values()]


def assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert got.device.type == DEVICE
    assert got.layout == expected.layout and got.dtype == expected.dtype and got.shape == expected.shape
    if expected.layout is torch.strided:
        assert got.stride() == expected.stride()
        torch.testing.assert_close(got.cpu(), expected, equal_nan=True)
        return
    if expected.layout is torch.sparse_coo:
        assert got.is_coalesced() == expected.is_coalesced()
    for a, b in zip(parts(got), parts(expected), strict=True):
        assert a.device == got.device
        torch.testing.assert_close(a.cpu(), b.cpu(), equal_nan=True)  # some samples name a device


@pytest.mark.parametrize("layout", LAYOUTS)
def test_conversions_equal_the_cpu(layout: str) -> None:
    there = DENSE.to(DEVICE)
    assert_same(sparse(layout, there), sparse(layout))
    assert_same(sparse(layout, there).to_dense(), DENSE)
    for other in LAYOUTS:
        expected = sparse(layout)
        block = (2, 2) if other.startswith("b") else None
        try:
            converted = expected.to_sparse(layout=LAYOUTS[other], blocksize=block)
        except RuntimeError as error:  # the CPU knows no way
            with pytest.raises(type(error)):
                expected.to(DEVICE).to_sparse(layout=LAYOUTS[other], blocksize=block)
            continue
        assert_same(expected.to(DEVICE).to_sparse(layout=LAYOUTS[other], blocksize=block), converted)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
@pytest.mark.openreg_only("CUDA, like the CPU, cannot copy compressed tensors deeply")
def test_copies_and_printing(layout: str, device: str) -> None:
    expected = sparse(layout)
    there = expected.to(device)
    assert there.device == torch.device(device) and all(part.device == there.device for part in parts(there))
    assert_same(there, expected)
    back = there.cpu()
    assert back.device.type == "cpu" and torch.equal(back.to_dense(), DENSE)
    assert_same(there.to(f"{DEVICE}:0").to(f"{DEVICE}:1"), expected)
    assert_same(there.to(torch.float64), expected.to(torch.float64))
    assert_same(there.clone(), expected)
    assert_same(copy.deepcopy(there), expected)
    assert_same(there.cpu().to(DEVICE, non_blocking=True), expected)
    assert (
        repr(there).replace(f"device='{device}'", "").replace(",", "").split()
        == repr(expected).replace(",", "").split()
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_into_a_tensor_that_is_there(layout: str) -> None:
    host, device = sparse(layout), torch.zeros_like(sparse(layout)).to(DEVICE)
    if layout != "coo":  # these keep their pattern
        device = sparse(layout, DENSE * 3).to(DEVICE)
    assert device.copy_(host) is device
    assert_same(device, host)
    host = sparse(layout, DENSE * 5)
    host.copy_(device)
    assert torch.equal(host.to_dense(), DENSE)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_save_and_load(layout: str) -> None:
    buffer = io.BytesIO()
    torch.save(sparse(layout).to(f"{DEVICE}:1"), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    assert loaded.device == torch.device(f"{DEVICE}:1")
    assert_same(loaded, sparse(layout))


@pytest.mark.parametrize("device", [f"{DEVICE}:0", f"{DEVICE}:1"])
def test_constructors_put_the_parts_on_the_device(device: str) -> None:
    indices, values = torch.tensor([[0, 2, 2], [1, 0, 0]]), torch.tensor([1.0, 2, 3])
    got = torch.sparse_coo_tensor(indices, values, (3, 2), device=device)
    assert got.device == torch.device(device) and not got.is_coalesced()
    assert_same(got.coalesce(), torch.sparse_coo_tensor(indices, values, (3, 2)).coalesce())
    got = torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2]), values, (2, 3), device=device)
    assert got.device == torch.device(device)
    assert_same(got, torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 2]), values, (2, 3)))
    assert_same(torch.empty(2, 3, layout=torch.sparse_coo, device=device), torch.empty(2, 3, layout=torch.sparse_coo))


@pytest.mark.parametrize(
    ("indices", "sentence"),
    [([[0, 3], [0, 0]], "size is inconsistent with indices"), ([[0, -1], [0, 0]], "found negative index")],
)
def test_constructors_check_indices(indices: list[list[int]], sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        torch.sparse_coo_tensor(torch.tensor(indices), torch.ones(2), (3, 2), device=DEVICE, check_invariants=True)


@pytest.mark.parametrize(
    "indices",
    [
        [[0, 1, 2]],
        [[0, 0, 2]],
        [[2, 0, 1]],
        [[0, 0, 2], [0, 1, 0]],
        [[0, 0, 2], [1, 0, 1]],
        [[1, 1, 1], [0, 0, 1], [0, 2, 0]],
    ],
)
def test_constructors_check_whether_a_tensor_is_coalesced(indices: list[list[int]]) -> None:
    def make(device: str) -> torch.Tensor | str:
        parts = torch.tensor(indices, device=device), torch.tensor([1.0, 2, 3], device=device)
        shape = (3,) * len(indices)
        try:
            return torch.sparse_coo_tensor(*parts, shape, check_invariants=True, is_coalesced=True)
        except RuntimeError as error:
            return str(error)

    expected, got = make("cpu"), make(DEVICE)
    if isinstance(expected, str) or isinstance(got, str):
        assert got == expected
    else:
        assert_same(got, expected)


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "add_": lambda s: s.add_(s),
    "mul_": lambda s: s.mul_(3),
    "neg_": lambda s: s.neg_(),
    "relu_": lambda s: s.relu_(),
    "zero_": lambda s: s.zero_(),
    "values": lambda s: s._values().mul_(2),
    "sparse_resize_": lambda s: s.sparse_resize_((6, 5), 2, 0),
    "sparse_resize_and_clear_": lambda s: s.sparse_resize_and_clear_((2, 2), 1, 1),
    "resize_as_sparse_": lambda s: s.resize_as_sparse_(torch.zeros(7, 7, device=s.device).to_sparse()),
    "copy_": lambda s: s.copy_((s.to_dense() > 2).float().to_sparse()),
    "to-another-pattern": lambda s: s.add_(torch.eye(4, device=s.device).to_sparse()),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_changes_in_place_equal_the_cpu(name: str) -> None:
    expected, got = sparse("coo"), sparse("coo").to(DEVICE)
    for each in (expected, got):
        IN_PLACE[name](each)
    assert_same(got, expected)


def slices() -> list[Any]:
    """Each operator with sparse samples and each layout: one pair in four in each run, the others behind `full`."""
    pairs = [(op, name) for op in op_db for name, layout in LAYOUTS.items() if op.supports_sparse_layout(layout)]
    labels = [f"{op.full_name}-{name}" for op, name in pairs]
    return [one_in(4, label, op, LAYOUTS[name]) for (op, name), label in zip(pairs, labels, strict=True)]


def samples(op: Any, layout: torch.layout, dtype: torch.dtype, requires_grad: bool) -> list[SampleInput]:
    """Some that PyTorch ships, or one of our own."""
    try:
        return list(itertools.islice(op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad), 8))
    except (RuntimeError, NotImplementedError):
        name = next(name for name, each in LAYOUTS.items() if each is layout)
        return [SampleInput(sparse(name, DENSE.abs().div(8).to(dtype)).requires_grad_(requires_grad))]


def on_device(value: Any) -> Any:
    """The same, on the device."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(DEVICE).requires_grad_(leaf.requires_grad)
        return DEVICE if leaf in ("cpu", torch.device("cpu")) else leaf

    return tree_map(move, value)


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def outcome(op: Any, call: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> list[torch.Tensor] | type[Exception]:
    """Results and gradients, or what was raised instead."""
    first, args, kwargs = call
    try:
        results = tensors(op(first, *args, **kwargs))
        outputs = [t for t in results if t.requires_grad]
        inputs = [t for t in tensors(call) if t.requires_grad]
        if not outputs or not inputs:
            return results
        seeds = [torch.ones_like(t) for t in outputs]
        gradients = torch.autograd.grad(outputs, inputs, seeds, allow_unused=True)
        return results + [gradient for gradient in gradients if gradient is not None]
    except (RuntimeError, NotImplementedError, IndexError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize(("op", "layout"), slices())
def test_operators_equal_the_cpu_with_gradients(op: Any, layout: torch.layout) -> None:
    judged = 0
    for dtype in sorted(op.supported_dtypes("cpu"), key=str):
        differentiable = dtype in op.supported_backward_dtypes("cpu") and dtype.to_real() is not torch.float16
        for sample in samples(op, layout, dtype, differentiable):
            call = (sample.input, sample.args, sample.kwargs)
            expected, got = outcome(op, call), outcome(op, on_device(call))
            if isinstance(expected, type):
                assert got is expected
                continue
            assert isinstance(got, list) and len(got) == len(expected)
            for a, b in zip(got, expected, strict=True):
                if op.name == "randn_like":
                    assert a.shape == b.shape and a.layout == b.layout and a.device.type == DEVICE
                else:
                    assert_same(a, b)
            judged += 1
    assert judged > 0


def test_sparse_gradients_train_an_embedding_as_on_the_cpu() -> None:
    def trained(device: str, kind: type[torch.optim.Optimizer]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        words, bags = torch.nn.Embedding(10, 4, sparse=True), torch.nn.EmbeddingBag(6, 4, sparse=True, mode="sum")
        words.to(device), bags.to(device)
        weights = [words.weight, bags.weight]
        optimizer = kind(weights, lr=0.1)  # type: ignore[call-arg]
        index = torch.tensor([1, 3, 3, 7], device=device)
        for _ in range(3):
            optimizer.zero_grad()
            loss = (words(index) * bags(index % 6, torch.tensor([0, 2, 3, 3], device=device))).square().sum()
            loss.backward()
            assert all(w.grad is not None and w.grad.is_sparse and w.grad.device == w.device for w in weights)
            optimizer.step()
        return [w.detach().cpu() for w in weights]

    for kind in (torch.optim.SGD, torch.optim.SparseAdam, torch.optim.Adagrad):
        torch.testing.assert_close(trained(DEVICE, kind), trained("cpu", kind))


def test_gradients_of_products_equal_the_cpu() -> None:
    def gradients(device: str, layout: str) -> list[torch.Tensor]:
        s = sparse(layout).to(device).requires_grad_()
        d = torch.linspace(-1, 1, 16, device=device).reshape(4, 4).requires_grad_()
        (torch.sparse.mm(s, d).sin().sum() + F.linear(d, d).sum()).backward()
        return [t.grad.to_dense().cpu() for t in (s, d) if t.grad is not None]

    for layout in ("coo", "csr"):
        got, expected = gradients(DEVICE, layout), gradients("cpu", layout)
        assert len(got) == 2
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin"])
def test_gradients_of_reducing_products_equal_the_cpu(reduce: str) -> None:
    def gradients(device: str) -> list[torch.Tensor]:
        s = sparse("csr").to(device).requires_grad_()
        d = torch.linspace(-1, 1, 12, device=device).reshape(4, 3).requires_grad_()
        torch.sparse.mm(s, d, reduce).square().sum().backward()
        return [t.grad.to_dense().cpu() for t in (s, d) if t.grad is not None]

    got, expected = gradients(DEVICE), gradients("cpu")
    assert len(got) == 2
    torch.testing.assert_close(got, expected)


def test_gradcheck_of_sparse_operators() -> None:
    s = sparse("coo", DENSE.double()).to(DEVICE).requires_grad_()
    d = torch.rand(4, 3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, d: torch.sparse.mm(s, d), (s, d), masked=True)
    assert torch.autograd.gradcheck(lambda s: torch.sparse.sum(s * 2, 0).to_dense(), (s,), masked=True)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda s: s + sparse("coo"), RuntimeError, "device"),
        (lambda s: s @ torch.ones(4, 2), RuntimeError, "device"),
        (lambda s: s @ torch.ones(3, 2, device=DEVICE), RuntimeError, "size"),
        (lambda s: s.cos(), NotImplementedError, "aten::cos"),
        (lambda s: s.pin_memory(), RuntimeError, "only dense CPU tensors can be pinned"),
        (lambda s: torch.sparse_coo_tensor(s._indices(), s._values(), (4, 4)).values(), RuntimeError, "coalesced"),
        (lambda s: s.data_ptr(), RuntimeError, "storage"),
    ],
    ids=["two-devices", "two-devices-mm", "sizes", "no-kernel", "pin", "uncoalesced", "data_ptr"],
)
def test_errors_are_clear_and_leave_the_tensor_alone(
    call: Callable[[torch.Tensor], Any], error: type[Exception], sentence: str
) -> None:
    s = sparse("coo").to(DEVICE)
    with pytest.raises(error, match=sentence):
        call(s)
    assert_same(s, sparse("coo"))


REFUSING = [
    pytest.param(op, layout, id=f"{op.full_name}-{name}")
    for op in op_db
    if op.error_inputs_sparse_func is not None
    for name, layout in LAYOUTS.items()
    if op.supports_sparse_layout(layout) and any(True for _ in op.error_inputs_sparse("cpu", layout))
]
assert REFUSING, "PyTorch ships no such samples any more"


@pytest.mark.parametrize(("op", "layout"), REFUSING)
def test_calls_that_pytorchs_database_lists_as_errors_raise(op: Any, layout: torch.layout) -> None:
    for expected in op.error_inputs_sparse("cpu", layout):
        sample = expected.sample_input
        call = (sample.input, sample.args, sample.kwargs)
        with pytest.raises(expected.error_type, match=expected.error_regex):
            op(call[0], *call[1], **call[2])
        first, args, kwargs = on_device(call)
        with pytest.raises(expected.error_type, match=expected.error_regex):
            op(first, *args, **kwargs)
