"""The operators that a program reaches on the device below autograd, forward and backward, with copies of what each is
given; and variants of these calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from outcome import DEVICE, UNDEFINED
from samples import is_plain, tensors

PER_OPERATOR = 4  # calls of one operator, at most
EMPTY_SIZES = 2  # how many of its sizes become 0, one at a time


class OperatorCall(NamedTuple):
    """One call. Its tensors are on the CPU."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    change: str = ""

    def __str__(self) -> str:
        def text(value: Any) -> str:
            if isinstance(value, torch.Tensor):
                return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            if isinstance(value, (list, tuple)):
                return f"[{', '.join(map(text, value))}]"
            return repr(value)

        given = [text(each) for each in self.args] + [f"{key}={text(each)}" for key, each in self.kwargs.items()]
        return f"{self.op}({', '.join(given)}){f' [{self.change}]' if self.change else ''}"

    def named_operands(self) -> dict[str, torch.Tensor]:
        """The tensors with elements, each once, by the argument's name."""
        found: dict[int, tuple[str, torch.Tensor]] = {}
        for i, argument in enumerate(self.op._schema.arguments):
            value = self.args[i] if i < len(self.args) else self.kwargs.get(argument.name)
            parts = tensors(value)
            for k, tensor in enumerate(parts):
                name = argument.name if isinstance(value, torch.Tensor) else f"{argument.name}[{k}]"
                if tensor.numel():
                    found.setdefault(id(tensor), (name, tensor))
        return dict(found.values())

    def written_operands(self) -> set[str]:
        """Those that the schema says are written."""
        written = {each.name for each in self.op._schema.arguments if each.alias_info and each.alias_info.is_write}
        return {name for name in self.named_operands() if name.split("[")[0] in written}

    def has_no_elements(self) -> bool:
        """Whether an operand has none."""
        return any(tensor.numel() == 0 for tensor in tensors((self.args, self.kwargs)))


def copied(value: Any, device: str) -> Any:
    """A nested value with copies of its tensors: with the same strides, and the same object where it is the same."""
    copies: dict[int, torch.Tensor] = {}

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        raw = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.detach().untyped_storage())
        storage = (raw.clone() if raw.device.type == device else raw.to(device)).untyped_storage()
        made = torch.empty(0, dtype=tensor.dtype, device=device)
        return made.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())

    def visit(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device(device)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in copies:
            copies[id(leaf)] = copy(leaf)
        return copies[id(leaf)]

    return tree_map(visit, value)


def can_be_judged(op: Any, args: Any, kwargs: Any) -> bool:
    """An operator of aten that computes with strided tensors, each in memory of its own, and draws no numbers."""
    if op.namespace != "aten" or UNDEFINED.match(op._schema.name.removeprefix("aten::")):
        return False
    if op._schema.name in VIEWS or torch.Tag.nondeterministic_seeded in op.tags or torch.Tag.inplace_view in op.tags:
        return False
    returned = [result.alias_info for result in op._schema.returns]
    if any(alias is not None and not alias.is_write for alias in returned):  # a view
        return False
    given = list({id(t): t for t in tensors((args, kwargs))}.values())
    if not given or not all(is_plain(t) and not t.is_conj() and not t.is_neg() for t in given):
        return False
    memory = [t.untyped_storage()._cdata for t in given if t.numel()]
    return len(set(memory)) == len(memory)


# Operators that nearly all programs reach; they are judged where they are what a program is about.
COMMON = {"clone", "copy_", "_to_copy", "sum", "mean", "mm", "bmm", "fill", "fill_", "zero_", "zeros_like", "cat"}


# Their results lie in the memory of an operand, although the schema does not say so.
VIEWS = {"aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::unsafe_chunk"}


class Recorder(TorchDispatchMode):
    """Notes the calls, each kind of call once. Elementwise and common operators only if they have the name `of`."""

    def __init__(self, of: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.of = of
        self.calls: dict[str, OperatorCall] = {}
        self.counts: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func)
        plain = func._schema.name.removeprefix("aten::")
        chosen = plain.rstrip("_") == self.of or not (torch.Tag.pointwise in func.tags or plain in COMMON)
        if chosen and can_be_judged(func, args, kwargs) and self.counts.get(name, 0) < PER_OPERATOR:
            call = OperatorCall(func, args, kwargs)
            if str(call) not in self.calls:
                self.counts[name] = self.counts.get(name, 0) + 1
                given = copied((args, kwargs), "cpu")
                self.calls[str(call)] = OperatorCall(func, *given)
        return func(*args, **kwargs)


def backward(result: Any) -> None:
    """Gradients of all that requires one."""
    outputs = [t for t in tensors(result) if t.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.rand_like(t) for t in outputs])


def call_sample(op: Any, sample: Any) -> Any:
    return sample.output_process_fn_grad(op(sample.input, *sample.args, **sample.kwargs))


def programs_of_operator(op: OpInfo, dtype: torch.dtype, samples: int) -> Iterator[Callable[[], Any]]:
    gradients = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    inputs = op.sample_inputs_func(op, DEVICE, dtype, requires_grad=gradients)
    for _, sample in zip(range(samples), inputs, strict=False):
        yield partial(call_sample, op, sample)
    if op.inplace_variant is not None:
        inputs = op.sample_inputs_func(op, DEVICE, dtype, requires_grad=False)
        for _, sample in zip(range(2), inputs, strict=False):
            yield partial(call_sample, op.inplace_variant, sample)


def programs_of_module(info: Any, dtype: torch.dtype, samples: int) -> Iterator[Callable[[], Any]]:
    for training in (True, False):
        inputs = info.module_inputs_func(info, DEVICE, dtype, requires_grad=True, training=training)
        for _, given in zip(range(samples), inputs, strict=False):
            if given.forward_input is None:
                continue

            def program(given: Any = given, training: bool = training) -> Any:
                constructor = given.constructor_input
                module = info.module_cls(*constructor.args, **constructor.kwargs).to(DEVICE, dtype)
                module.train(training)
                return module(*given.forward_input.args, **given.forward_input.kwargs)

            yield program


def recorded(of: str, programs: Iterator[Callable[[], Any]]) -> list[OperatorCall]:
    """The calls of all programs that run. `of`: the operator that they are about."""
    recorder = Recorder(of)
    for program in programs:
        torch.manual_seed(0)
        try:
            with warnings.catch_warnings(), recorder:
                warnings.simplefilter("ignore")
                backward(program())
            torch.accelerator.synchronize()
        except Exception:  # the census judges whether it fails as it should
            continue
    return list(recorder.calls.values())


def variants(call: OperatorCall) -> Iterator[OperatorCall]:
    """The call; with each number that is not an integer as 0, each flag reversed; with a size that is 0 everywhere."""
    yield call
    leaves, spec = tree_flatten((call.args, call.kwargs))
    for i, leaf in enumerate(leaves):
        if (isinstance(leaf, (bool, float)) and leaf != 0.0) or leaf is False:
            other = not leaf if isinstance(leaf, bool) else 0.0
            args, kwargs = tree_unflatten([*leaves[:i], other, *leaves[i + 1 :]], spec)
            yield OperatorCall(call.op, args, kwargs, f"{leaf} -> {other}")
    # 1 as a scale is an integer in some calls
    for i, argument in enumerate(call.op._schema.arguments):
        if argument.name in ("alpha", "beta", "value") and str(argument.type) == "number":
            if i < len(call.args):
                args = (*call.args[:i], 0, *call.args[i + 1 :])
                yield OperatorCall(call.op, args, call.kwargs, f"{argument.name} = 0")
            else:
                yield OperatorCall(call.op, call.args, {**call.kwargs, argument.name: 0}, f"{argument.name} = 0")
    sizes = [size for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape if size > 1]
    for size in list(dict.fromkeys(sizes))[:EMPTY_SIZES]:

        def emptied(leaf: Any, size: int = size) -> Any:
            if isinstance(leaf, torch.Tensor) and size in leaf.shape:
                return leaf.new_empty([0 if each == size else each for each in leaf.shape])
            return leaf

        args, kwargs = tree_map(emptied, (call.args, call.kwargs))
        yield OperatorCall(call.op, args, kwargs, f"size {size} -> 0")
    # an index, or another operand alone, without elements
    for name, tensor in call.named_operands().items():
        if tensor.dtype in (torch.int64, torch.int32, torch.bool) and tensor.dim() == 1:
            args, kwargs = tree_map(lambda leaf, t=tensor: leaf[:0] if leaf is t else leaf, (call.args, call.kwargs))
            yield OperatorCall(call.op, args, kwargs, f"{name} without elements")
