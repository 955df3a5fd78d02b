"""Compiled programs do what orders work, streams, events, waits, where the program says, between the same kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from stream_programs import SHAPE, Clock, Program, mark, synchronize, watched
from torch._dynamo import config as dynamo_config
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code
from torch.testing import assert_close


@pytest.fixture(autouse=True)
def _nothing_is_cached() -> Iterator[None]:
    with inductor_config.patch(fx_graph_cache=False), functorch_config.patch(enable_autograd_cache=False):
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


def call(function: Callable[..., Any], clock: Clock, *, training: bool = False) -> tuple[list[torch.Tensor], Any]:
    """The results of a program, gradients included, and what it did in which order."""
    clock.reset()
    w = torch.linspace(-1, 1, 32, device="openreg").reshape(SHAPE).requires_grad_(training)
    matrix = torch.linspace(-0.3, 0.3, 64, device="openreg").reshape(8, 8)
    side, first, second = torch.openreg.Stream(), torch.openreg.Event(), torch.openreg.Event()
    with watched(clock):
        results = function(w, matrix, *clock.devices, clock.host, clock.state, side, first, second)
        synchronize()
        log = list(clock.log)
        if training:
            torch.stack([result.sum().to("openreg:0") for result in results]).sum().backward()
            synchronize()
    seen = [result.detach().cpu() for result in (*results, clock.state)]
    return (seen if w.grad is None else [*seen, w.grad.cpu()]), log


def assert_in_order(function: Callable[..., Any], clock: Clock, **options: Any) -> None:
    """Compiled by Inductor it does what PyTorch's trace of it does, operator by operator."""
    expected, order = call(torch.compile(function, backend="eager"), clock, **options)
    torch._dynamo.reset()
    got, got_order = call(torch.compile(function), clock, **options)
    assert got_order == order
    assert_close(got, expected, rtol=1e-4, atol=1e-4)


OPERATIONS: dict[str, Callable[..., object]] = {
    "event.record": lambda side, event: event.record(),
    "event.wait": lambda side, event: event.wait(),
    "event.synchronize": lambda side, event: event.synchronize(),
    "stream.record_event": lambda side, event: torch.openreg.current_stream().record_event(event),
    "stream.wait_event": lambda side, event: side.wait_event(event),
    "stream.wait_stream": lambda side, event: side.wait_stream(torch.openreg.current_stream()),
    "wait_stream of the current stream": lambda side, event: torch.openreg.current_stream().wait_stream(side),
    "stream.synchronize": lambda side, event: side.synchronize(),
    "torch.openreg.synchronize": lambda side, event: torch.openreg.synchronize(),
    "torch.accelerator.synchronize": lambda side, event: torch.accelerator.synchronize(),
    "an operator without tensors": lambda side, event: mark(7),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS.keys())
def test_kernels_stay_on_their_side_of(operation, clock):
    def program(w, matrix, c0, c1, host, state, side, first, second):
        before = torch.relu(w) + c0
        operation(side, first)
        again = torch.relu(w) + c0  # the same computation, of other memory
        later = before * 2 + again.sum(0) + c0
        operation(side, first)
        return before, again, later, later @ matrix + c0

    assert_in_order(program, clock)
    assert len(clock.log) == 2


def test_streams_share_no_value_that_one_of_them_computed():
    """Nothing makes the second stream wait for the first one, which may be busy."""
    first, second = torch.Stream("openreg"), torch.Stream("openreg")
    streams: list[Any] = []

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with first:
            a = 2 * x + y
        with second:
            b = 2 * x + y
            c = (2 * x).sin()
        return a, b, c

    def note(module: torch.fx.GraphModule, inputs: Any) -> Any:
        products = module.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)
        streams.extend(node.meta["custom"]["stream"] for node in products)
        return make_boxed_func(module)

    def compile_backward(module: torch.fx.GraphModule, inputs: Any) -> Any:
        return make_boxed_func(module)

    backend = aot_autograd(
        fw_compiler=note, bw_compiler=compile_backward, partition_fn=min_cut_rematerialization_partition
    )
    x, y = (torch.ones(SHAPE, device="openreg", requires_grad=True) for _ in range(2))
    torch.compile(program, backend=backend, fullgraph=True)(x, y)
    assert len(streams) in (2, 3)  # torch 2.14.1 does not share within a stream either
    assert len(set(streams)) == 2


def test_forward_operations_stay_in_the_forward_pass(clock):
    def program(w, matrix, c0, c1, host, state, side, first, second):
        x = w * 2 + c0
        first.record()
        mark(1)
        torch.openreg.synchronize()
        x = x @ matrix + c0
        first.wait()
        return x, x * 3 + c0

    assert_in_order(program, clock, training=True)
    assert [each[0] for each in clock.log] == ["record_event", "mark", "synchronize_device", "wait_event"]


def test_a_change_of_an_input_precedes_what_follows_it(clock):
    def program(w, matrix, c0, c1, host, state, side, first, second):
        state.copy_(w * 0 + 1)
        mark(1)
        state.add_(1)
        mark(2)
        return (w + c0,)

    assert_in_order(program, clock)
    assert clock.log == [("mark", 1, 1.0), ("mark", 2, 2.0)]


# PyTorch refuses to record an event there.
@pytest.mark.parametrize("operation", [key for key in OPERATIONS if "record" not in key])
def test_a_graph_ends_between_a_change_of_an_input_and(operation):
    def program(state, side, event):
        state.add_(1)
        OPERATIONS[operation](side, event)
        return state * 2

    state = torch.zeros(3, device="openreg")
    explained = torch._dynamo.explain(program)(state, torch.openreg.Stream(), torch.openreg.Event())
    assert explained.graph_break_count >= 1
    assert state.tolist() == [1, 1, 1]


def test_the_host_and_the_device_may_have_the_same_kernel():
    def program(x, y):
        return x.to("cpu") * 2 + y, x * 2 + y.to("openreg")

    x, y = torch.rand(4, 8), torch.rand(4, 8)
    for result in torch.compile(program)(x.to("openreg"), y):
        assert_close(result.cpu(), x * 2 + y)


def test_kernels_are_grouped_between_operations_that_order_work():
    event = torch.openreg.Event()

    def program(x, y):
        a, b = x.sin(), y.sum(0)
        event.record()
        return a, b, x.cos(), y.amax(0)

    x, y = torch.rand(64, device="openreg"), torch.rand(8, 9, device="openreg")
    _, (code,) = run_and_get_code(torch.compile(program), x, y)
    body = code[code.index("def call(") : code.index("return (")]
    assert re.findall(r"^ +(cpp_fused|torch.ops.streams.record_event)", body, re.MULTILINE) == [
        "cpp_fused",
        "torch.ops.streams.record_event",
        "cpp_fused",
    ]


# Programs made at random.
@pytest.mark.parametrize("seed", range(4))
def test_a_random_program_runs_in_order(seed, clock):
    assert_in_order(Program(seed).function(), clock)


@pytest.mark.parametrize("seed", range(2))
def test_a_random_program_trains_in_order(seed, clock):
    assert_in_order(Program(seed, training=True).function(), clock, training=True)


@pytest.mark.full
@pytest.mark.parametrize("scalars", [False, True], ids=["breaks at item", "captures item"])
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_many_random_programs_run_in_order(seed, scalars, clock):
    with dynamo_config.patch(capture_scalar_outputs=scalars):
        assert_in_order(Program(seed).function(), clock)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2000, 2150))
def test_many_random_programs_train_in_order(seed, clock):
    assert_in_order(Program(seed, training=True).function(), clock, training=True)
