"""Compiled programs that switch streams, and checkpoints in them: values, gradients, and programs from the cache."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

import busy_streams
import pytest
import torch
import torch.nn.functional as F
from busy_streams import LONG, Program
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters
from torch._higher_order_ops import scan, while_loop
from torch._inductor import config as inductor_config
from torch._inductor.utils import fresh_cache, run_and_get_code
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

DEVICE = "openreg"
WEIGHT = torch.linspace(-1, 2, 64).view(8, 8)

Block = Callable[[torch.Tensor, torch.Tensor, list[torch.Stream]], torch.Tensor]


@pytest.fixture(autouse=True)
def _nothing_is_cached() -> Iterator[None]:
    with fresh_cache():
        yield


@torch.library.custom_op("openreg_streams::double_", mutates_args=("x",))
def double_(x: torch.Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op("openreg_streams::noisy", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def noisy(x: torch.Tensor) -> torch.Tensor:
    return x + torch.rand_like(x)


@noisy.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


noisy.register_autograd(lambda ctx, gradient: gradient)


def on_a_stream(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    current = torch.accelerator.current_stream()
    streams[0].wait_stream(current)
    with streams[0]:
        y = F.dropout(x @ w, 0.5)
    current.wait_stream(streams[0])
    return y.sin()


def nothing_after_it(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    """The first gradient comes from the current stream, the last one goes back to it."""
    current = torch.accelerator.current_stream()
    streams[0].wait_stream(current)
    with torch.openreg.stream(streams[0]):
        y = F.dropout((x @ w).sin(), 0.5).cos()
    current.wait_stream(streams[0])
    return y


def two_streams(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    current = torch.accelerator.current_stream()
    for stream in streams:
        stream.wait_stream(current)
    with streams[0]:
        y = F.dropout(x @ w, 0.5)
    with streams[1]:
        z = torch.rand_like(x) * (x.cos() @ w)
        streams[1].wait_stream(streams[0])
        z = z + F.dropout(y, 0.3)
    both = F.dropout(x, 0.2)
    for stream in streams:
        current.wait_stream(stream)
    return (y * z + both).sin()


def events(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    ready, done = torch.openreg.Event(), torch.openreg.Event()
    a = x.sin() @ w
    ready.record()
    with streams[0]:
        ready.wait()
        b = F.dropout(a, 0.5) @ w
        done.record()
    c = torch.rand_like(a) * a
    done.wait()
    return b.sin() * c


def in_a_nested_checkpoint(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    y = checkpoint(on_a_stream, x, w, streams, use_reentrant=False)
    return checkpoint(nothing_after_it, y, w, streams, use_reentrant=False) * y


def of_numbers_only(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    """The device of the operator is that of an argument, and no operand is."""
    current = torch.accelerator.current_stream()
    streams[0].wait_stream(current)
    with streams[0]:
        y = torch.rand(x.shape, device=x.device).normal_() * x
    current.wait_stream(streams[0])
    return y.sin() + torch.randint(0, 9, x.shape, device=x.device) * x


def custom_operators(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    current = torch.accelerator.current_stream()
    streams[0].wait_stream(current)
    with streams[0]:
        y = noisy(x @ w).sin()
        scale = torch.ones_like(x)
        double_(scale)
        y = y * scale
    current.wait_stream(streams[0])
    return y.cos()


def on_the_host(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    current = torch.accelerator.current_stream()
    streams[0].wait_stream(current)
    with streams[0]:
        y = (F.dropout(x @ w, 0.5).cpu() * 2).to(x.device).sin()
    current.wait_stream(streams[0])
    return y.cos()


def the_stream_is_current(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    current = torch.accelerator.current_stream()
    with current:
        y = F.dropout(x @ w, 0.5)
    with streams[0]:
        streams[0].wait_stream(current)
        z = F.dropout(y.sin(), 0.5)
    current.wait_stream(streams[0])
    return z * y


BLOCKS = [
    on_a_stream,
    two_streams,
    *(
        pytest.param(block, marks=pytest.mark.full)
        for block in (
            nothing_after_it,
            events,
            in_a_nested_checkpoint,
            of_numbers_only,
            custom_operators,
            on_the_host,
            the_stream_is_current,
        )
    ),
]


def in_a_checkpoint(block: Block, x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    return checkpoint(block, x, w, streams, use_reentrant=False)


def train(function: Program, busy: str = "", streams: list[torch.Stream] | None = None) -> list[torch.Tensor]:
    side = streams or [torch.openreg.Stream(), torch.openreg.Stream()]
    return busy_streams.train(function, torch.linspace(-2, 2, 64).view(8, 8), WEIGHT, side, busy)


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.full)], ids=["static", "dynamic"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_checkpoint_computes_what_eager_mode_does(block, dynamic):
    function = functools.partial(in_a_checkpoint, block)
    with inductor_config.patch(fallback_random=True):
        compiled = torch.compile(function, dynamic=dynamic, fullgraph=True)
        expected = train(function)
        for busy in ("", "current", "side", ""):
            assert_close(train(compiled, busy), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("block", [pytest.param(on_a_stream, marks=pytest.mark.full), two_streams])
def test_a_checkpoint_draws_the_same_numbers_again_on_busy_streams(block):
    """With Inductor's numbers, which do not depend on what the streams are."""
    compiled = torch.compile(functools.partial(in_a_checkpoint, block), fullgraph=True)
    expected = None
    for busy in ("current", "side", ""):
        got = train(compiled, busy)
        expected = expected or got
        assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("busy", ["", pytest.param("current", marks=pytest.mark.full), "side"])
def test_gradients_are_those_of_the_numbers_that_were_drawn(busy):
    result, gradient, _ = train(torch.compile(functools.partial(in_a_checkpoint, on_a_stream)), busy)
    x = torch.linspace(-2, 2, 64).view(8, 8)
    scale = (result.cpu() != 0) * 2.0
    assert 0 < scale.count_nonzero() < scale.numel()
    assert_close(result.cpu(), (x @ WEIGHT * scale).sin())
    assert_close(gradient.cpu(), ((x @ WEIGHT * scale).cos() * scale) @ WEIGHT.t(), rtol=1e-4, atol=1e-4)


def without_a_checkpoint(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    """`a` is read on another stream after its last use on this one, which then needs memory of the same size."""
    current = torch.accelerator.current_stream()
    a = x @ w
    streams[0].wait_stream(current)
    with streams[0]:
        b = a @ w
    c = (x + 1) @ w
    d = (x + 2) @ w
    current.wait_stream(streams[0])
    return b.sin() + c.cos() * d


def branches(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    current = torch.accelerator.current_stream()
    streams[0].wait_stream(current)
    with streams[0]:
        y = torch.cond(x.sum() > 1e9, lambda y: y.sin(), lambda y: (y @ y.t()).cos(), (x @ w,))
    current.wait_stream(streams[0])
    return y.sin()


def loops(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    current = torch.accelerator.current_stream()
    zero = torch.zeros((), dtype=torch.int64, device=DEVICE)
    z = x + 1
    streams[0].wait_stream(current)
    with streams[0]:
        _, y = while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, (y @ w).sin()), (zero, x.clone()))
        u = (z @ w).cos()
    _, v = while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, (y @ w).cos()), (zero, z))
    current.wait_stream(streams[0])
    return y.cos() + u * v


def rows(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
    current = torch.accelerator.current_stream()
    streams[0].wait_stream(current)
    with streams[0]:
        y = torch._higher_order_ops.map(lambda row: (row @ w).sin(), x)
        _, z = scan(lambda total, row: (total + row, total * row), torch.zeros(8, device=DEVICE), x)
    current.wait_stream(streams[0])
    return y.cos() + z


PROGRAMS = [
    without_a_checkpoint,
    branches,
    pytest.param(loops, marks=pytest.mark.full),
    pytest.param(rows, marks=pytest.mark.full),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_computes_what_eager_mode_does_on_busy_streams(program):
    compiled = torch.compile(program, fullgraph=True)
    expected = train(program)
    for busy in ("", "current", "side"):
        assert_close(train(compiled, busy), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "compiled_forward",
    [pytest.param(False, id="eager", marks=pytest.mark.full), pytest.param(True, id="compiled")],
)
def test_compiled_autograd_computes_what_eager_mode_does_on_busy_streams(compiled_forward):
    expected = train(without_a_checkpoint)
    function = torch.compile(without_a_checkpoint) if compiled_forward else without_a_checkpoint
    for busy in ("", "current", "side"):
        with compiled_autograd._enable(torch.compile(dynamic=False)):
            assert_close(train(function, busy), expected, rtol=1e-4, atol=1e-4)


def hits() -> int:
    return counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"]


@pytest.mark.parametrize("block", [on_a_stream, pytest.param(two_streams, marks=pytest.mark.full)])
def test_a_program_from_the_cache_has_the_streams_of_its_call(block):
    function = functools.partial(in_a_checkpoint, block)
    with inductor_config.patch(fallback_random=True):
        expected = train(function)
        for _ in range(2):
            torch._dynamo.reset()
            before = hits()
            for busy in ("", "current", "side"):
                assert_close(train(torch.compile(function), busy), expected, rtol=1e-4, atol=1e-4)
    assert hits() > before


@pytest.mark.parametrize("program", [pytest.param(without_a_checkpoint, marks=pytest.mark.full), branches])
def test_inference_from_the_cache(program):
    x, w, streams = torch.rand(8, 8, device=DEVICE), WEIGHT.to(DEVICE), [torch.openreg.Stream()]
    with torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            assert_close(torch.compile(program)(x, w, streams), program(x, w, streams), rtol=1e-4, atol=1e-4)


def test_programs_that_differ_in_a_stream_only_are_two_programs():
    first, second = torch.openreg.Stream(), torch.openreg.Stream()

    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        current = torch.accelerator.current_stream()
        first.wait_stream(current)
        second.wait_stream(current)
        with (current, first, second)[number]:
            y = x.sin() + 1
        current.wait_stream(first)
        current.wait_stream(second)
        return y * 2

    found = []
    for number in range(3):
        torch._dynamo.reset()
        _, (code,) = run_and_get_code(torch.compile(program), torch.ones(8, device=DEVICE), number)
        found.append(set(re.findall(r"get_external_object_by_index\((\d+)\)", code)))
    assert found[1] != found[2] and len(found[1]) == len(found[2]) == 1


def test_a_backward_pass_has_the_streams_of_its_forward_pass():
    first = [torch.openreg.Stream(), torch.openreg.Stream()]
    others = [torch.openreg.Stream() for _ in range(4)]
    function = functools.partial(in_a_checkpoint, on_a_stream)
    compiled, other = torch.compile(function), torch.compile(lambda x, w, s: two_streams(x, w, s) * 2)

    def forward(x: torch.Tensor, w: torch.Tensor, streams: list[torch.Stream]) -> torch.Tensor:
        y = compiled(x, w, streams)
        other(x, w, others)  # compiled the first time, called the second time
        return y

    with inductor_config.patch(fallback_random=True):
        expected = train(function)
        for _ in range(2):
            got = train(forward, streams=first)
            assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_a_backward_pass_runs_on_the_stream_of_its_forward_pass():
    side, other = torch.openreg.Stream(), torch.openreg.Stream()

    def program(x: torch.Tensor, stream: torch.Stream) -> torch.Tensor:
        current = torch.accelerator.current_stream()
        stream.wait_stream(current)
        with stream:
            y = x.sin() @ x
        current.wait_stream(stream)
        return y

    compiled = torch.compile(program)
    x = torch.rand(8, 8, device=DEVICE, requires_grad=True)
    compiled(x, side).sum().backward()  # which compiles the backward pass: that may take longer than the device sleeps
    y = compiled(x, side)
    compiled(x, other)
    torch.openreg.synchronize()
    with torch.openreg.stream(other):
        torch.openreg._sleep(100 * LONG)
    y.sum().backward()
    torch.openreg.current_stream().synchronize()
    assert not other.query()


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_a_backward_pass_runs_on_the_stream_of_its_own_program_not_of_the_first():
    # 2.15 keeps the objects of the first program that was called for the backward passes of all.
    def program_on(stream: torch.Stream) -> Callable[[torch.Tensor], torch.Tensor]:
        def program(x: torch.Tensor) -> torch.Tensor:
            current = torch.accelerator.current_stream()
            stream.wait_stream(current)
            with stream:
                y = x.sin() @ x
            current.wait_stream(stream)
            return y

        return torch.compile(program)

    streams = [torch.openreg.Stream(), torch.openreg.Stream()]
    first, second = map(program_on, streams)
    x = torch.rand(8, 8, device=DEVICE, requires_grad=True)
    for program in (first, second):
        program(x).sum().backward()  # which compiles
    y = second(x)
    torch.openreg.synchronize()
    with torch.openreg.stream(streams[0]):
        torch.openreg._sleep(100 * LONG)
    y.sum().backward()
    torch.openreg.current_stream().synchronize()
    assert not streams[0].query()


def test_a_backward_pass_can_be_differentiated_no_further_and_says_so():
    compiled = torch.compile(lambda x: x.sin().sum())
    x = torch.rand(8, device=DEVICE, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    assert_close(gradient.detach(), x.detach().cos())
    with pytest.raises(RuntimeError, match="double backward"):
        gradient.sum().backward()
