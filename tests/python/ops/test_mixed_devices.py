"""Tensors of the CPU beside those of the device: what CUDA takes, the device takes, and computes as on one device.

A table of calls that CUDA's kernels take by a rule of their own; and a sweep over PyTorch's operator database, in which
each tensor of a call is moved to the other side. There the rules are those of PyTorch's fake tensors: what they take
without an error has to be computed, on the device that they say. One entry in 16 is swept each time, by a hash of its
name; all of them with ``-m ""``.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import DEVICE
from slices import one_in
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db

pytestmark = [pytest.mark.any_device, pytest.mark.filterwarnings("ignore")]
aten = torch.ops.aten

Put = Callable[[Any], torch.Tensor]


def put_on(device: str) -> Put:
    return lambda value: torch.as_tensor(value).to(device)


def floats(*shape: int) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


MASK = [True, False, True, False]

# Functions of two places, of which CUDA takes any two; the result is on the first one.
EITHER_WAY: dict[str, Callable[[Put, Put], Any]] = {
    "index_put": lambda x, y: aten.index_put(x(floats(4, 4)), [y([2, 1])], x(floats(4))),
    "index_put-mask": lambda x, y: aten.index_put(x(floats(4, 4)), [y(MASK)], x(floats(4))),
    "index_put-mask-number": lambda x, y: aten.index_put(x(floats(4, 4)), [y(MASK)], x(2.0)),
    "index_put-columns": lambda x, y: aten.index_put(x(floats(4, 4)), [None, y([2, 1])], x(floats(4, 1))),
    "index_put-both": lambda x, y: aten.index_put(x(floats(4, 4)), [x([0, 3]), y([2, 1])], x(floats(2))),
    "index_put-add": lambda x, y: aten.index_put(x(floats(4, 4)), [y([2, 2])], x(floats(4)), True),
    "index_put-value": lambda x, y: aten.index_put(x(floats(4, 4)), [x([2, 1])], y(7.0)),
    "index_put-all": lambda x, y: aten.index_put(x(floats(4, 4)), [y([2, 1])], y(7.0)),
    "index_put_": lambda x, y: x(floats(4, 4)).index_put_((y([2, 1]),), x(floats(4))),
    "index_put_-add": lambda x, y: x(floats(4, 4)).index_put_((y([2, 2]),), x(floats(4)), accumulate=True),
    "_index_put_impl_": lambda x, y: aten._index_put_impl_(x(floats(4, 4)), [y([2, 1])], x(floats(4))),
    "_unsafe_index_put": lambda x, y: aten._unsafe_index_put(x(floats(4, 4)), [y([2, 1])], x(floats(4))),
    "setitem": lambda x, y: assigned(x(floats(4, 4)), y([2, 1]), x(floats(4))),
    "setitem-value": lambda x, y: assigned(x(floats(4, 4)), x([2, 1]), y(7.0)),
    "setitem-slice": lambda x, y: assigned(x(floats(4, 4)), slice(1, 3), y(floats(4))),
    "bernoulli_": lambda x, y: x(floats(4)).bernoulli_(y([0.0, 1.0, 1.0, 0.0])),
    "fill_": lambda x, y: x(floats(3)).fill_(y(2.0)),
    "fill": lambda x, y: torch.fill(x(floats(3)), y(2.0)),
    "index_fill_": lambda x, y: x(floats(3)).index_fill_(0, x([1]), y(2.0)),
    "index_fill": lambda x, y: x(floats(3)).index_fill(0, x([1]), y(2.0)),
    "copy_": lambda x, y: x(floats(3)).copy_(y(floats(3) + 1)),
    "copy": lambda x, y: aten.copy(x(floats(3)), y(floats(3) + 1)),
    "_foreach_copy_": lambda x, y: copied([x(floats(3)), x(floats(2))], [y(floats(3) + 1), y(floats(2) + 1)]),
    "resize_as_": lambda x, y: x(floats(6)).resize_as_(y(floats(2, 3))),
    "reshape_as": lambda x, y: x(floats(6)).reshape_as(y(floats(2, 3))),
    "expand_as": lambda x, y: x(floats(3)).expand_as(y(floats(2, 3))),
    "view_as": lambda x, y: x(floats(6)).view_as(y(floats(2, 3))),
    "broadcast_tensors": lambda x, y: torch.broadcast_tensors(x(floats(3)), y(floats(2, 3)))[0],
    "narrow": lambda x, y: torch.narrow(x(floats(4)), 0, y(1), 2),
    "subscript": lambda x, y: x(floats(4))[y(1)],
    "linspace": lambda x, y: torch.linspace(y(0.0), y(1.0), 3, device=x(0.0).device),
    "full": lambda x, y: torch.full((2,), y(3.0).item(), device=x(0.0).device),
    "number": lambda x, y: x(floats(3)) + y(2.0).item(),
}

# The same, if the first is the device. The others are on the CPU.
OF_THE_DEVICE: dict[str, Callable[[Put, Put], Any]] = {
    "index": lambda x, y: x(floats(4, 4))[y([2, 1])],
    "index-mask": lambda x, y: x(floats(4, 4))[y(MASK)],
    "_unsafe_index": lambda x, y: aten._unsafe_index(x(floats(4, 4)), [y([2, 1])]),
    "masked_fill": lambda x, y: x(floats(4)).masked_fill(x(MASK), y(2.0)),
    "masked_fill_": lambda x, y: x(floats(4)).masked_fill_(x(MASK), y(2.0)),
    "add": lambda x, y: x(floats(3)) + y(2.0),
    "radd": lambda x, y: y(2.0) + x(floats(3)),
    "add_": lambda x, y: x(floats(3)).add_(y(2.0)),
    "add-out": lambda x, y: torch.add(x(floats(3)), y(2.0), out=x(floats(3))),
    "pow": lambda x, y: y(2.0) ** x(floats(3)),
    "compare": lambda x, y: x(floats(3)) < y(2.0),
    "where": lambda x, y: torch.where(x(MASK), x(floats(4)), y(0.0)),
    "where-condition": lambda x, y: torch.where(y(True), x(floats(4)), x(0.0)),
    "lerp": lambda x, y: torch.lerp(x(floats(4)), x(floats(4) + 1), y(0.5)),
    "addcmul": lambda x, y: torch.addcmul(x(floats(4)), x(floats(4)), y(2.0)),
    "bernoulli_": lambda x, y: x(floats(4)).bernoulli_(y([0.0, 1.0, 1.0, 0.0])),
    "_foreach_mul_": lambda x, y: multiplied([x(floats(3)), x(floats(2))], y(2.0)),
    "_foreach_mul": lambda x, y: torch._foreach_mul([x(floats(3)), x(floats(2))], y(2.0)),
    "_foreach_add": lambda x, y: torch._foreach_add([x(floats(3)), x(floats(2))], y(2.0)),
    "_foreach_addcmul": lambda x, y: torch._foreach_addcmul(*[[x(floats(3)), x(floats(2))]] * 3, y([2.0, 3.0])),
    "_foreach_addcdiv": lambda x, y: torch._foreach_addcdiv(*[[x(floats(3)), x(floats(2))]] * 3, y([2.0, 3.0])),
    "tensor_split": lambda x, y: x(floats(4)).tensor_split(y([1, 3])),
    "fused_adam": lambda x, y: step_of(torch.optim.Adam, x, y),
    "fused_adamw": lambda x, y: step_of(torch.optim.AdamW, x, y),
    "fused_sgd": lambda x, y: step_of(torch.optim.SGD, x, y),
    "pack_padded_sequence": lambda x, y: torch.nn.utils.rnn.pack_padded_sequence(x(floats(3, 2, 1)), y([3, 2])).data,
    "ctc_loss": lambda x, y: torch.nn.functional.ctc_loss(
        x(floats(5, 2, 3)).log_softmax(2), x([[1, 2], [2, 1]]), y([5, 5]), y([2, 2])
    ),
}

# What CUDA refuses: the others are on the device, and the first is the CPU.
REFUSED: dict[str, Callable[[Put, Put], Any]] = {
    "index": lambda x, y: x(floats(4, 4))[y([2, 1])],
    "index-mask": lambda x, y: x(floats(4, 4))[y(MASK)],
    "index_put": lambda x, y: aten.index_put(x(floats(4, 4)), [x([2, 1])], y(floats(4))),
    "masked_fill": lambda x, y: x(floats(4)).masked_fill(x(MASK), y(2.0)),
    "masked_fill-mask": lambda x, y: x(floats(4)).masked_fill(y(MASK), 2.0),
    "add": lambda x, y: x(floats(3)) + y(2.0),
    "add_": lambda x, y: x(2.0).add_(y(2.0)),
    "add-out": lambda x, y: torch.add(y(floats(3)), y(2.0), out=x(floats(3))),
    "where": lambda x, y: torch.where(x(MASK), x(floats(4)), y(0.0)),
    "gather": lambda x, y: x(floats(4)).gather(0, y([2, 1])),
    "index_select": lambda x, y: x(floats(4)).index_select(0, y([2, 1])),
    "mm": lambda x, y: x(floats(2, 2)) @ y(floats(2, 2)),
    "cat": lambda x, y: torch.cat([x(floats(2)), y(floats(2))]),
}


def assigned(x: torch.Tensor, index: Any, value: torch.Tensor) -> torch.Tensor:
    x[index] = value
    return x


def copied(to: list[torch.Tensor], source: list[torch.Tensor]) -> list[torch.Tensor]:
    torch._foreach_copy_(to, source)
    return to


def multiplied(tensors: list[torch.Tensor], factor: torch.Tensor) -> list[torch.Tensor]:
    torch._foreach_mul_(tensors, factor)
    return tensors


def step_of(kind: Any, x: Put, y: Put) -> torch.Tensor:
    """One step of a fused optimizer, whose learning rate is a tensor."""
    parameter = x(floats(3)).requires_grad_()
    parameter.grad = x(floats(3))
    optimizer = kind([parameter], lr=y(0.5), fused=True)
    optimizer.step()
    return parameter.detach()


def assert_computed(function: Callable[[Put, Put], Any], first: str, other: str) -> None:
    expected = tree_leaves(function(put_on("cpu"), put_on("cpu")))
    found = tree_leaves(function(put_on(first), put_on(other)))
    for got, want in zip(found, expected, strict=True):
        assert got.device.type == first
        assert_close(got.cpu(), want)


@pytest.mark.parametrize("name", EITHER_WAY)
@pytest.mark.parametrize("first", ["cpu", DEVICE], ids=["cpu-first", "device-first"])
def test_places_that_may_differ(name, first):
    assert_computed(EITHER_WAY[name], first, DEVICE if first == "cpu" else "cpu")


@pytest.mark.parametrize("name", OF_THE_DEVICE)
def test_places_of_the_cpu(name):
    assert_computed(OF_THE_DEVICE[name], DEVICE, "cpu")


@pytest.mark.parametrize("name", REFUSED)
def test_places_of_the_device(name):
    with pytest.raises((RuntimeError, IndexError), match="device"):
        REFUSED[name](put_on("cpu"), put_on(DEVICE))


# Entries of which fake tensors take calls that CUDA refuses.
MADE_BESIDE_THE_FIRST = "the result is made where the first operand is, be it a number of the CPU"
NO_NUMBERS = "it takes no numbers of the CPU"
NOT_CHECKED = "the rules are not checked for it"
FAKE_TENSORS_ONLY = {
    **dict.fromkeys(("complex", "logical_and", "logical_or", "logical_xor", "polar"), MADE_BESIDE_THE_FIRST),
    **dict.fromkeys(
        ("nn.functional.binary_cross_entropy_with_logits", "nn.functional.soft_margin_loss"), MADE_BESIDE_THE_FIRST
    ),
    **dict.fromkeys(("masked_scatter", "clamp", "index_fill", "index_select", "index_reduce"), NO_NUMBERS),
    **dict.fromkeys(("normal", "native_dropout_backward", "nn.functional.embedding"), NO_NUMBERS),
    **dict.fromkeys([f"nn.functional.conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)], NOT_CHECKED),
    **dict.fromkeys(
        ("nn.functional.linear_cross_entropy", "linalg.pinv", "_unsafe_masked_index_put_accumulate"), NOT_CHECKED
    ),
}


def mixtures(values: Any, device: str, other: str) -> list[Any]:
    """The call on one device, with one of its tensors on the other."""
    leaves, spec = tree_flatten(values)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    found = []
    for odd in places if len(places) > 1 else ():
        moved = [
            leaf.detach().to(other if i == odd else device) if isinstance(leaf, torch.Tensor) else leaf
            for i, leaf in enumerate(leaves)
        ]
        found.append(tree_unflatten(moved, spec))
    return found


def places_of_fakes(op: Any, values: Any) -> list[str] | None:
    """The devices of the results by the rules of fake tensors; None if they refuse the call."""
    leaves, spec = tree_flatten(values)
    with FakeTensorMode() as mode:
        try:
            fakes = [mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            first, args, kwargs = tree_unflatten(fakes, spec)
            results = tree_leaves(op(first, *args, **kwargs))
        except Exception:
            return None
    return [leaf.device.type for leaf in results if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize(
    "op", [one_in(16, f"{op.name}.{op.variant_test_name}", op) for op in op_db if op.name not in FAKE_TENSORS_ONLY]
)
def test_the_rules_of_fake_tensors(op):
    dtype = next((each for each in (torch.float32, torch.int64) if each in op.supported_dtypes("cpu")), None)
    if dtype is None:
        pytest.skip("it has none of the usual dtypes on the CPU")
    wrong, judged = [], 0
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), 3):
        values = (sample.input, sample.args, sample.kwargs)
        for device, other in ((DEVICE, "cpu"), ("cpu", DEVICE)):
            for i, call in enumerate(mixtures(values, device, other)):
                places = places_of_fakes(op, call)
                if places is None:
                    continue
                first, args, kwargs = call
                try:
                    torch.manual_seed(0)
                    results = [
                        leaf for leaf in tree_leaves(op(first, *args, **kwargs)) if isinstance(leaf, torch.Tensor)
                    ]
                    assert [leaf.device.type for leaf in results] == places, [leaf.device.type for leaf in results]
                    judged += 1
                except Exception as error:
                    wrong.append(f"{device}, tensor {i} on {other}: {type(error).__name__}: {str(error)[:150]}")
    if not judged and not wrong:
        pytest.skip("its tensors have to be on one device")
    assert not wrong, "\n".join(wrong)
