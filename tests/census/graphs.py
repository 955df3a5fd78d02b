"""Graphs: a call is captured once and replayed with other elements each time, and gives the bits of the call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch.testing import _utils
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils._pytree import tree_flatten, tree_unflatten

from outcome import DEVICE, UNDEFINED, Cost, clear_errors, device_module, with_gradients
from result import Result, failure
from samples import Call, Mover, call_of, detached, is_plain, mapped, tensors

REPLAYS = 3  # kernels keep nothing of the first run, and what they have kept is proven by the second
NOT_PERMITTED = "operation not permitted when stream is capturing"


class Way(NamedTuple):
    """How an entry is called. `prepare` makes what has to be there before the capture, on the device."""

    name: str
    run: Callable[[Any, Call, Any], Any]
    change: Callable[[Call], Call] = lambda call: call
    prepare: Callable[[Any, Call], Any] = lambda op, call: None


def run_in_place(op: Any, call: Call, _: Any) -> Any:
    return op.inplace_variant(call.input, *call.args, **call.kwargs)


def run_out(op: Any, call: Call, outs: Any) -> Any:
    return op(call.input, *call.args, **call.kwargs, out=outs)


def like_results(op: Any, call: Call) -> Any:
    results = op(call.input, *call.args, **call.kwargs)
    return tuple(map(torch.zeros_like, results)) if isinstance(results, tuple) else torch.zeros_like(results)


def ways_of(op: Any, dtype: torch.dtype) -> Iterator[tuple[Way, bool]]:
    """Each with whether its calls have gradients."""
    call = Way("call", lambda op, call, _: with_gradients(op, call))
    yield call, dtype in op.supported_backward_dtypes("cpu")
    yield call._replace(name="noncontiguous", change=mapped(noncontiguous_like)), False
    if op.inplace_variant is not None:
        yield Way("in place", run_in_place), False
    if op.supports_out:
        yield Way("out", run_out, prepare=like_results), False


def with_tensors_of(call: Call, other: Call) -> Call | None:
    """The call with the other's tensors, if those are of the same shapes, strides and dtypes."""
    leaves, spec = tree_flatten(tuple(call))
    others, other_spec = tree_flatten(tuple(other))
    if spec != other_spec:
        return None
    for i, (leaf, new) in enumerate(zip(leaves, others, strict=True)):
        if isinstance(leaf, torch.Tensor) != isinstance(new, torch.Tensor):
            return None
        if not isinstance(leaf, torch.Tensor):
            continue
        if not is_plain(leaf) or not is_plain(new) or geometry(leaf) != geometry(new):
            return None
        leaves[i] = new
    return Call(*tree_unflatten(leaves, spec))


def geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage().nbytes()
    return (
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.storage_offset(),
        tensor.is_conj(),
        tensor.is_neg(),
        storage,
    )


def variants(op: Any, dtype: torch.dtype, gradients: bool, samples: int) -> Iterator[list[Call]]:
    """Each sample with several sets of elements."""
    streams = []
    for seed in range(REPLAYS + 1):
        torch.manual_seed(seed)
        streams.append(list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), samples)))
    for same in zip(*streams, strict=False):
        first, *others = map(call_of, same)
        calls = [first, *(with_tensors_of(first, other) for other in others)]
        if known := [call for call in calls if call is not None]:
            yield known


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of the elements on the CPU, as bytes."""
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    return torch.empty(plain.shape, dtype=plain.dtype).copy_(plain).reshape(-1).view(torch.uint8)


def assert_same_bits(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert got.dtype == expected.dtype and got.shape == expected.shape, f"{what} has another dtype or shape"
    if not torch.equal(raw(got), raw(expected)):
        got, expected = got.detach().cpu(), expected.detach().cpu()
        both_nan = (got != got) & (expected != expected)  # of which there are many
        different = ((got != expected) & ~both_nan).sum().item()
        assert not different, f"{what}: {different} of {expected.numel()} elements differ"


def without_seeds(work: Callable[[], Any]) -> Any:
    """Some entries set a seed of their own before they draw, and restore the state after that."""
    with patch.object(torch, "manual_seed", lambda _: None), patch.object(_utils, "freeze_rng_state", nullcontext):
        return work()


def copy_elements(to: Call, of: Call) -> None:
    for static, given in zip(tensors(tuple(to)), tensors(tuple(of)), strict=True):
        static.untyped_storage().copy_(given.untyped_storage(), non_blocking=True)


def eager(op: Any, way: Way, call: Call, seed: int, cost: Cost) -> tuple[Call, list[torch.Tensor]]:
    """The call with its elements before it, and all that has come of it."""
    there, other = (Call(*Mover(DEVICE)(tuple(call))) for _ in range(2))
    prepared = way.prepare(op, other)  # not with those that count, which it may change
    torch.accelerator.synchronize()
    torch.manual_seed(seed)
    results = without_seeds(lambda: cost.measure(lambda: way.run(op, there, prepared)))
    made = [tensor.detach().clone() for tensor in [*tensors(results), *tensors(tuple(there))]]
    torch.accelerator.synchronize()
    return Call(*Mover(DEVICE)(tuple(call))), made


def check_call(op: Any, way: Way, calls: list[Call], result: Result) -> None:
    """Raises AssertionError where a replay differs from the call."""
    expected, waits = [], []
    for seed, call in enumerate(calls):
        cost = Cost()
        try:
            expected.append((seed, *eager(op, way, call, seed, cost)))
        except Exception:  # it is refused: other checks look at that
            clear_errors()
            continue
        waits.append(cost.waits)
    if not expected or not (waits[-1] == 0 or all(waits)):
        return
    if not all(is_plain(tensor) for _, _, made in expected for tensor in made):
        return
    static = Call(*Mover(DEVICE)(tuple(calls[expected[0][0]])))
    prepared = way.prepare(op, static)
    graph = device_module().CUDAGraph()
    torch.accelerator.synchronize()
    try:
        with device_module().graph(graph):
            results = without_seeds(lambda: way.run(op, static, prepared))
    except RuntimeError as error:
        # The host does not wait when it copies a few numbers, but a replay would not find them there any more.
        assert waits[-1] or "not pinned" in str(error), f"cannot be captured, and does not wait: {failure(error)}"
        assert NOT_PERMITTED in str(error), f"another error than that of a wait: {failure(error)}"
        result.waits += 1
        return
    assert not waits[-1], "can be captured, although it waits"
    made = [*tensors(results), *tensors(tuple(static))]
    for seed, elements, wanted in expected * (1 if len(expected) > REPLAYS else REPLAYS + 1):
        torch.manual_seed(seed)
        with torch.no_grad():
            copy_elements(static, elements)
        if prepared is not None:
            for out in tensors(prepared):
                out.zero_()
        graph.replay()
        if not UNDEFINED.match(op.name):
            for i, (g, e) in enumerate(zip(made, wanted, strict=True)):
                assert_same_bits(g, e, f"result {i}" if i < len(tensors(results)) else "an input")
    result.samples += 1


def check_samples(op: Any, result: Result, samples: int, check: Callable[[Any, Way, list[Call], Result], None]) -> None:
    """Calls `check` with each sample's sets of elements, in each way. It raises AssertionError."""
    dtype = getattr(torch, result.dtype)
    for way, gradients in ways_of(op, dtype):
        try:
            found = list(variants(op, dtype, gradients, samples))
        except Exception as error:  # what the CPU cannot do is not ours to judge
            result.status, result.details = "cpu", [f"no samples: {failure(error)}"]
            return
        for number, calls in enumerate(found):
            try:
                changed = [way.change(call if gradients else detached(call)) for call in calls]
                check(op, way, changed, result)
            except Exception as error:
                result.unequal(f"[{way.name}] sample {number}: {failure(error)}")
                clear_errors()


def check_graphs(op: Any, result: Result, samples: int) -> None:
    check_samples(op, result, samples, check_call)
    if not result.samples and not result.waits and result.status == "equal":
        result.details = ["nothing is captured"]
