"""What records a program sees the same operators on the device as on the CPU, and the record computes the same.

Swept: PyTorch's operator database and its lists of tensors, out of place and in place, recorded by `torch.jit.trace`,
by `make_fx` from real tensors (which is what every dispatch mode sees), and before autograd from fake ones, as
`torch.export` does. Each record is run with other numbers than it was made with: an operator that is not in it, or a
result that became a constant, shows there, too. One entry in 64 is swept each time, by a hash of its name; all of them
with ``-m ""``.
"""

from __future__ import annotations

import gc
import itertools
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import DEVICE
from slices import UNINITIALISED, one_in
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal import common_methods_invocations as database

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES = 2
DTYPES = [torch.float32, torch.int64, torch.complex64, torch.bool]
# Swept each time: what was once not recorded.
ALWAYS = ("nn.functional.conv2d", "nn.functional.conv_transpose1d", "_foreach_add_", "_foreach_sqrt_", "istft")
DATABASES = ["op_db", *(name for name in dir(database) if name.startswith("foreach_") and name.endswith("_op_db"))]

# The operators by which the device differs from the CPU where real tensors are recorded, as CUDA does.
BATCH_NORM = {"aten._native_batch_norm_legit.default", "aten._native_batch_norm_legit_no_training.default"}
OF_A_GPU = {
    "native_batch_norm": BATCH_NORM,
    "nn.functional.batch_norm": BATCH_NORM,
    "nn.functional.instance_norm": BATCH_NORM,
    "nn.functional.rms_norm": {"aten._fused_rms_norm.default"},
    "nn.functional.multi_head_attention_forward": {"aten.native_dropout.default"},
}
INDICES_OF_THE_HOST = ("tensor_split",)
SEED = 42  # that of entries which set one whenever they are called, which no record shows

Leaves = list[torch.Tensor]
Function = Callable[..., Leaves]


def name_of(op: Any) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def forms() -> list[Any]:
    """Each entry, out of place and in place."""
    found = []
    for op in itertools.chain.from_iterable(getattr(database, name) for name in DATABASES):
        for form in ("method" if op.op is None else "op", "inplace_variant"):
            if getattr(op, form) is not None:
                name = name_of(op) + ("_" if form == "inplace_variant" else "")
                found.append(one_in(1 if name in ALWAYS else 64, name, op, getattr(op, form)))
    return found


def function_of(call: Callable[..., Any], values: Any, in_place: bool) -> tuple[Function, Leaves]:
    """A function of the call's tensors, and these."""
    leaves, spec = tree_flatten(values)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> Leaves:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor.clone() if in_place else tensor
        first, args, kwargs = tree_unflatten(filled, spec)
        result = call(first, *args, **kwargs)
        return [leaf for leaf in tree_leaves((result, first if in_place else ())) if isinstance(leaf, torch.Tensor)]

    return function, [leaves[place] for place in places]


def kinds_of_trace(function: Function, tensors: Leaves) -> tuple[Counter[str], Function]:
    traced = torch.jit.trace(function, tuple(tensors), check_trace=False)
    kinds = Counter(node.kind() for node in traced.inlined_graph.nodes())
    return Counter({kind: count for kind, count in kinds.items() if kind.startswith("aten::")}), traced


def targets(recorded: torch.fx.GraphModule) -> tuple[Counter[str], Function]:
    called = [node.target for node in recorded.graph.nodes]
    return Counter(str(target) for target in called if isinstance(target, torch._ops.OpOverload)), recorded


WAYS = {
    "trace": kinds_of_trace,
    "make_fx": lambda function, tensors: targets(make_fx(function)(*tensors)),
    "export": lambda function, tensors: targets(make_fx(function, tracing_mode="fake", pre_dispatch=True)(*tensors)),
}


def other_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """The same ones in another order, which an index allows, too."""
    return tensor.flip(tuple(range(tensor.dim()))) if tensor.layout == torch.strided else tensor.clone()


def recorded_on(device: str, way: str, op: Any, call: Any, values: Any) -> tuple[Counter[str], Any, Any]:
    """What was recorded, its results with other numbers, and those of the function itself."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            on_host = op.name in INDICES_OF_THE_HOST and not leaf.is_floating_point()
            return leaf.detach().to("cpu" if on_host else device)
        return device if leaf in ("cpu", torch.device("cpu")) and isinstance(leaf, str | torch.device) else leaf

    function, tensors = function_of(call, tree_map(move, values), call is op.inplace_variant)
    gc.disable()  # generators of samples that were left switch gradients where they are freed, which would be recorded
    try:
        seen, record = WAYS[way](function, tensors)
    finally:
        gc.enable()
    results = []
    for run in (record, function):
        torch.manual_seed(SEED)
        found = tree_leaves(run(*(other_numbers(tensor) for tensor in tensors)))  # copies, which it may change
        results.append([leaf.cpu() for leaf in found if isinstance(leaf, torch.Tensor)])
    return seen, *results


def same(results: Leaves, others: Leaves) -> bool:
    try:
        assert_close(results, others, equal_nan=True)
    except (AssertionError, NotImplementedError):
        return False
    return True


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("op", "call"), forms())
def test_the_operators_of_the_cpu_are_recorded(op, call, way):
    dtype = next((each for each in DTYPES if each in op.supported_dtypes("cpu")), None)
    if dtype is None:
        pytest.skip("it has none of the usual dtypes on the CPU")
    judged, wrong = 0, []
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
        values = (sample.input, sample.args, sample.kwargs)
        try:
            expected, recomputed, computed = recorded_on("cpu", way, op, call, values)
        except Exception:
            continue  # what the CPU cannot record is not ours to judge
        try:
            seen, from_record, from_function = recorded_on(DEVICE, way, op, call, values)
        except Exception as error:
            if "Inconsistent key_set (=DispatchKeySet(SparseCsrPrivateUse1" in str(error):
                pytest.skip("PyTorch has no fake compressed sparse tensors of an out-of-tree device")
            wrong.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        judged += 1
        of_a_gpu = OF_A_GPU.get(op.name, set()) if way == "make_fx" else set()
        if seen != expected and not (seen - expected).keys() & of_a_gpu:
            wrong.append(f"recorded {dict(seen - expected)} instead of {dict(expected - seen)}")
        if op.name not in UNINITIALISED and same(recomputed, computed) and not same(from_record, from_function):
            wrong.append("the record computes something else than the function")
    if not judged and not wrong:
        pytest.skip("the CPU records none of its samples")
    assert not wrong, "\n".join(wrong)
