"""Functions and modules whose forward and backward passes are replayed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, arg_tree_leaves, tree_flatten, tree_leaves, tree_unflatten

from .._slot import NAME
from .arguments import check_integer, check_type, pool_id
from .device import synchronize
from .graph_capture import CUDAGraph, Pool, graph, graph_pool_handle
from .memory_pools import MemPool
from .streams import Stream, StreamContext


@dataclasses.dataclass
class _Part:
    """A callable with the graphs of its forward and backward pass, and the tensors that they read and write."""

    function: Callable[..., Any]
    samples: tuple[Any, ...]
    allow_unused_input: bool
    options: dict[str, Any]  # of `graph`
    inputs: tuple[torch.Tensor, ...] = ()  # the arguments' tensors
    parameters: tuple[torch.nn.Parameter, ...] = ()
    outputs: tuple[torch.Tensor, ...] = ()
    spec: TreeSpec | None = None
    gradients: tuple[torch.Tensor | None, ...] = ()  # of the outputs
    input_gradients: tuple[torch.Tensor | None, ...] = ()  # of inputs and parameters
    saved: list[torch.Tensor] = dataclasses.field(default_factory=list)  # by the forward pass for the backward one
    forward_graph: CUDAGraph = dataclasses.field(default_factory=CUDAGraph)
    backward_graph: CUDAGraph = dataclasses.field(default_factory=CUDAGraph)

    def __post_init__(self) -> None:
        leaves = arg_tree_leaves(*self.samples)
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(
                    "openreg: the sample_args of make_graphed_callables must be tensors "
                    f"(got {type(leaf).__name__}, expected torch.Tensor)"
                )
        self.inputs = tuple(leaves)
        module = self.function
        if isinstance(module, torch.nn.Module):
            if module._forward_hooks or module._forward_pre_hooks or module._backward_hooks:
                raise RuntimeError("openreg: a module must not have hooks when it is graphed; register them afterwards")
            if any(buffer.requires_grad for buffer in module.buffers()):
                raise RuntimeError("openreg: buffers of a graphed module must not require gradients")
            self.parameters = tuple(module.parameters())

    @property
    def surface(self) -> tuple[torch.Tensor, ...]:
        """All tensors that may need gradients."""
        return self.inputs + self.parameters

    def compute_gradients(
        self, outputs: tuple[torch.Tensor, ...], gradients: tuple[torch.Tensor | None, ...]
    ) -> Iterator[torch.Tensor | None]:
        """The gradients of the inputs and parameters that require one."""
        wanted = [(out, grad) for out, grad in zip(outputs, gradients, strict=True) if grad is not None]
        leaves = tuple(each for each in self.surface if each.requires_grad)
        if not wanted or not leaves:
            return iter([None] * len(leaves))
        return iter(
            torch.autograd.grad(
                tuple(out for out, _ in wanted),
                leaves,
                tuple(grad for _, grad in wanted),
                only_inputs=True,
                allow_unused=self.allow_unused_input,
            )
        )

    def warm_up(self, iterations: int) -> None:
        for _ in range(iterations):
            outputs = tuple(tree_leaves(self.function(*self.samples)))
            self.compute_gradients(outputs, _empty_gradients(outputs))

    def capture_forward(self, pool: Pool) -> None:
        saved = self.saved

        # Autograd's nodes hold this function and what it returns. Neither holds a node, by the part or by a tensor: if
        # the capture fails, nothing would break that cycle, which Python's collector does not see.
        def keep(tensor: torch.Tensor) -> torch.Tensor:
            tensor = tensor.detach()
            saved.append(tensor)
            return tensor

        with (
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            graph(self.forward_graph, pool=pool, **self.options),
        ):
            outputs = self.function(*self.samples)
        leaves, self.spec = tree_flatten(outputs)
        self.outputs = tuple(leaves)

    def capture_backward(self, pool: Pool) -> None:
        self.gradients = _empty_gradients(self.outputs)
        self.input_gradients = tuple(None for _ in self.surface)
        if all(gradient is None for gradient in self.gradients):
            return
        # Not in the pool, where the next forward pass writes: gradients may be accumulated over several passes.
        kept = [torch.empty_like(each) if each.requires_grad else None for each in self.surface]
        with graph(self.backward_graph, pool=pool, **self.options):
            found = self.compute_gradients(self.outputs, self.gradients)
            self.input_gradients = tuple(
                None if static is None or (gradient := next(found)) is None else static.copy_(gradient)
                for static in kept
            )

    def forget_autograd(self) -> None:
        """Detaches from the capture's nodes, which belong to its stream: they must not accumulate gradients."""
        self.outputs = tuple(output.detach() for output in self.outputs)

    def __call__(self, *args: Any) -> Any:
        inputs = arg_tree_leaves(*args)
        assert self.spec is not None
        outputs = _Replay.apply(self, *inputs, *self.parameters)  # type: ignore[no-untyped-call]
        return tree_unflatten(outputs, self.spec)


def _empty_gradients(outputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor | None, ...]:
    return tuple(torch.empty_like(output) if output.requires_grad else None for output in outputs)


def _fill(static: torch.Tensor, given: torch.Tensor) -> None:
    """Copies a tensor to where the graph reads it, unless it is already there."""
    if static.data_ptr() != given.data_ptr() or static.stride() != given.stride():
        static.copy_(given)


def _keep_gradient(leaf: torch.Tensor, written: torch.Tensor) -> None:
    """Clones a leaf's gradient if it is still in the graph's memory, as the first one is: the next replay would
    overwrite it before autograd adds to it."""
    if leaf.grad is not None and leaf.grad.data_ptr() == written.data_ptr():
        leaf.grad = leaf.grad.clone()


class _Replay(torch.autograd.Function):
    """A part's forward pass as one node of autograd."""

    @staticmethod
    def forward(ctx: Any, part: _Part, *surface: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.part = part
        for static, given in zip(part.inputs, surface, strict=False):
            _fill(static, given)
        part.forward_graph.replay()
        ctx.leaves = tuple(each if each.is_leaf and each.requires_grad else None for each in surface)
        # Views, so that autograd does not change the outputs themselves.
        return tuple(output.detach() for output in part.outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        part: _Part = ctx.part
        for static, given in zip(part.gradients, gradients, strict=True):
            if static is not None:
                _fill(static, given)
        for leaf, gradient in zip(ctx.leaves, part.input_gradients, strict=True):
            if leaf is not None and gradient is not None:
                _keep_gradient(leaf, gradient)
        if any(static is not None for static in part.gradients):
            part.backward_graph.replay()
        return (None, *(None if each is None else each.detach() for each in part.input_gradients))


def make_graphed_callables(
    callables: Any,
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Pool | MemPool | None = None,
    capture_error_mode: str = "global",
    enable_annotations: bool = False,
) -> Any:
    """Captures the forward and the backward pass of each callable and returns callables that replay them.

    Results and gradients are in the same memory in each call: clone what must outlive the next one. Replays take
    positional arguments only. As in `torch.cuda`.

    Args:
        callables: a function or module, or a tuple of those that run in this order; they share a memory pool.
        sample_args: the positional arguments of a call, a tuple of tensors (or of containers of tensors) with the
            shapes, dtypes and `requires_grad` of all later calls; for a tuple of callables, a tuple of those.
        num_warmup_iters: how often each is called before the capture.
        allow_unused_input: whether the outputs may be independent of some inputs.
        pool: as in `CUDAGraph.capture_begin`; default a new one.
        capture_error_mode: as in `CUDAGraph.capture_begin`.
        enable_annotations: not supported, as in `graph`.

    Returns:
        A callable for each one given, in a tuple if `callables` is a tuple. For a module this is the module itself with
        another `forward`, which replays only while `training` has its present value.

    Raises:
        RuntimeError: annotations are enabled, autocast is on with its cache (pass ``cache_enabled=False``), a module
            has hooks or buffers that require gradients, or the capture fails.
        TypeError: `sample_args` contains anything other than tensors, or does not match `callables`.
        ValueError: `num_warmup_iters` is negative.
    """
    several = isinstance(callables, tuple)
    functions, samples = (callables, sample_args) if several else ((callables,), (sample_args,))
    check_integer("num_warmup_iters", num_warmup_iters, 0, 2**31)
    check_type("sample_args", sample_args, tuple, "a tuple of tensors, or one for each callable")
    for function, args in zip_longest(functions, samples):
        if not callable(function) or not isinstance(args, tuple):
            raise TypeError(
                "openreg: make_graphed_callables takes a tuple of tensors for each callable "
                f"(got {type(function).__name__} and {type(args).__name__})"
            )
    if torch.is_autocast_enabled(NAME) and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "openreg: make_graphed_callables does not support the cache of autocast, which would keep casts made "
            "outside the graph; pass cache_enabled=False to autocast"
        )
    options: dict[str, Any] = {"capture_error_mode": capture_error_mode, "enable_annotations": enable_annotations}
    parts = [
        _Part(function, args, allow_unused_input, options) for function, args in zip(functions, samples, strict=True)
    ]
    shared = graph_pool_handle() if pool is None else pool_id(pool)
    synchronize()
    with StreamContext(Stream()):  # a warm-up on the default stream would create the gradients there
        for part in parts:
            part.warm_up(num_warmup_iters)
    synchronize()
    # In the order in which they will run, as a shared pool requires.
    for part in parts:
        part.capture_forward(shared)
    for part in reversed(parts):
        part.capture_backward(shared)
    for part in parts:
        part.forget_autograd()
    graphed = tuple(_replayed(part) for part in parts)
    return graphed if several else graphed[0]


def _replayed(part: _Part) -> Callable[..., Any]:
    module = part.function
    if not isinstance(module, torch.nn.Module):
        return part
    training, original = module.training, module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return part(*args, **kwargs) if module.training == training else original(*args, **kwargs)

    module.forward = forward
    return module
