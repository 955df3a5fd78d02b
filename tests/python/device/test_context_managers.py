"""What a context manager restores belongs to one entry of one thread. Each of ours is entered by two threads at once,
twice by one thread, and left by an exception. They are found by introspection, so that a new one needs a row here:
classes with ``__enter__`` and functions made by ``contextlib.contextmanager`` in all modules of the device.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import os
import pkgutil
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from devices import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:openreg. the captured graph is empty")
openreg = torch.openreg
ROOT = Path(__file__).parents[3]


def current() -> object:
    """The current device, and the current stream of each device."""
    streams = tuple(torch.accelerator.current_stream(index).stream_id for index in (0, 1))
    return torch.accelerator.current_device_index(), streams


def set_own_streams(thread: int) -> None:
    for index in (0, 1):
        openreg.set_stream(openreg.Stream(device=index))
    openreg.set_device(thread % 2)


def autocast() -> object:
    return torch.is_autocast_enabled(DEVICE), torch.get_autocast_dtype(DEVICE), torch.is_autocast_cache_enabled()


def set_own_autocast(thread: int) -> None:
    torch.set_autocast_dtype(DEVICE, (torch.bfloat16, torch.float16)[thread % 2])
    torch.set_autocast_cache_enabled(thread % 2 == 0)


def pool() -> object:
    address = torch.empty(1 << 20, device=DEVICE).data_ptr()
    segments = openreg.memory_snapshot()
    of = (each for each in segments if each["address"] <= address < each["address"] + each["total_size"])
    return next(of)["segment_pool_id"]


def ranges() -> object:
    return openreg.nvtx.range_push("probe"), openreg.nvtx.range_pop()


def nothing(thread: int = 0) -> None:
    return None


@dataclass
class Row:
    """`make` returns what is called for each entry: it returns the same object each time unless that is for one entry,
    as contextlib's are. `exclusive`: only one entry at a time is possible, and a second one raises RuntimeError."""

    make: Callable[[], Callable[[], AbstractContextManager[Any]]]
    state: Callable[[], object] = nothing
    prepare: Callable[[int], None] = nothing
    changes: bool = True
    exclusive: bool = False


def same(entered: Callable[[], AbstractContextManager[Any]]) -> Callable[[], Callable[[], AbstractContextManager[Any]]]:
    def make() -> Callable[[], AbstractContextManager[Any]]:
        one = entered()
        return lambda: one

    return make


def with_pool() -> Callable[[], AbstractContextManager[Any]]:
    own = openreg.MemPool()
    return lambda: openreg.use_mem_pool(own)


def external() -> torch.Stream:
    stream = openreg.Stream(device=1)
    keep.append(stream)
    return openreg.ExternalStream(stream.native_handle, device=1)


keep: list[object] = []

ROWS = {
    "amp.autocast": Row(
        same(lambda: openreg.amp.autocast(enabled=True, dtype=torch.float16)), autocast, set_own_autocast
    ),
    # Holds for all threads, because those of autograd launch too.
    "computing.assume": Row(lambda: lambda: openreg.assume(nonzero=0.5), changes=False),
    "device.device": Row(same(lambda: openreg.device(1)), current, lambda thread: set_own_streams(0)),
    "device.device_of": Row(
        same(lambda: openreg.device_of(torch.ones(1, device=f"{DEVICE}:1"))), current, lambda thread: set_own_streams(0)
    ),
    "faults.Fault": Row(same(lambda: openreg.faults.inject("oom", at="allocation:10000")), exclusive=True),
    "faults.inject": Row(same(lambda: openreg.faults.inject("oom", at="allocation:10000")), exclusive=True),
    "graph_capture.graph": Row(
        same(lambda: openreg.graph(openreg.CUDAGraph())), current, set_own_streams, exclusive=True
    ),
    "graph_hooks.GraphHooks._replay_hooks": Row(lambda: openreg.CUDAGraph()._replay_hooks, changes=False),
    "memory_fits.fits": Row(lambda: lambda: openreg.fits("h100"), exclusive=True),
    "memory_peak.peak": Row(lambda: openreg.memory.peak, changes=False),
    "memory_pools.use_mem_pool": Row(with_pool, pool),
    "nvtx.range": Row(lambda: lambda: openreg.nvtx.range("r"), ranges),
    # As in torch.cuda, the recording is the process's: it stops at the first exit.
    "profiler.profile": Row(lambda: openreg.profiler.profile, changes=False),
    "streams.ExternalStream": Row(same(external), current, set_own_streams),
    "streams.Stream": Row(same(lambda: openreg.Stream(device=1)), current, set_own_streams),
    "streams.StreamContext": Row(
        same(lambda: openreg.StreamContext(openreg.Stream(device=1))), current, set_own_streams
    ),
    "streams.stream": Row(same(lambda: openreg.stream(openreg.Stream(device=1))), current, set_own_streams),
    "streams.stream, of one stream": Row(
        lambda: (lambda stream: lambda: openreg.stream(stream))(openreg.Stream(device=1)), current, set_own_streams
    ),
    "worlds.fake_world": Row(
        lambda: lambda: openreg.fake_world(2), lambda: os.environ.get("WORLD_SIZE"), exclusive=True
    ),
}
# Not entered by programs, or not ours.
LEFT_OUT = {
    "context.record": "entered by torch.openreg.fits",
    "fake_world._replacing_current": "entered by torch.openreg.fake_world",
    "fake_world.entered": "entered by torch.openreg.fake_world",
    "graph_streams.found": "replaces a table of Dynamo's, which the process has once",
}


def test_each_context_manager_has_a_row():
    package = importlib.import_module(openreg.__name__)
    found = set()
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(info.name)
        own = {name: each for name, each in vars(module).items() if getattr(each, "__module__", None) == info.name}
        members = {
            f"{name}.{key}": each for name, of in own.items() if inspect.isclass(of) for key, each in vars(of).items()
        }
        for name, each in (own | members).items():
            is_class = inspect.isclass(each) and hasattr(each, "__enter__")
            returned = str(getattr(each, "__annotations__", {}).get("return"))
            is_function = inspect.isfunction(each) and (
                "ContextManager" in returned
                or (hasattr(each, "__wrapped__") and inspect.isgeneratorfunction(inspect.unwrap(each)))
                or returned == "Fault"
            )
            if (is_class or is_function) and not name.endswith("__enter__"):
                found.add(f"{info.name.rpartition('.')[2]}.{name}")
    assert found == {name.partition(",")[0] for name in ROWS}


def test_no_context_manager_is_hidden_elsewhere():
    """In modules that are imported late, and in openreg-cuda: by their sources."""
    found = set()
    for folder in ("python/torch_openreg", "packages/openreg-cuda/src"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                    is_one = "__enter__" in methods
                else:
                    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
                    is_one = any("contextmanager" in ast.unparse(each) for each in decorators)
                if is_one:
                    found.add(f"{path.stem}.{node.name}")
    methods = {".".join((name.split(".")[0], name.split(".")[-1])) for name in ROWS}
    assert found - methods == LEFT_OUT.keys()


def use(row: Row, entered: AbstractContextManager[Any], inside: Callable[[], None]) -> bool:
    """Whether it could be entered."""
    before = row.state()
    try:
        entered.__enter__()
    except RuntimeError:
        assert row.exclusive
        assert row.state() == before
        inside()
        return False
    try:
        assert not row.changes or row.state is nothing or row.state() != before
        inside()
    finally:
        try:
            entered.__exit__(None, None, None)
        except RuntimeError:
            assert row.exclusive  # a capture that another thread has invalidated
    assert row.state() == before
    return True


@pytest.mark.parametrize(("name", "first_leaves_first"), list(itertools.product(ROWS, (True, False))))
def test_two_threads_are_inside_at_the_same_time(name, first_leaves_first):
    row = ROWS[name]
    entered = row.make()
    inside, outside = [threading.Event() for _ in range(2)], [threading.Event() for _ in range(2)]
    outcomes: dict[int, object] = {}

    def run(thread: int) -> None:
        row.prepare(thread)
        if thread == 1:
            assert inside[0].wait(30)

        def until_it_leaves() -> None:
            inside[thread].set()
            assert inside[1 - thread].wait(30)
            if (thread == 0) != first_leaves_first:
                assert outside[1 - thread].wait(30)

        try:
            outcomes[thread] = use(row, entered(), until_it_leaves)
        except BaseException as error:
            outcomes[thread] = error
        finally:
            inside[thread].set()
            outside[thread].set()

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for outcome in outcomes.values():
        if isinstance(outcome, BaseException):
            raise outcome
    assert outcomes == {0: True, 1: not row.exclusive}


@pytest.fixture
def own_thread():
    """Runs a function in a thread of its own, whose state no other test sees."""

    def run(function: Callable[[], None]) -> None:
        errors: list[BaseException] = []

        def main() -> None:
            try:
                function()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    return run


@pytest.mark.parametrize("name", ROWS)
def test_a_thread_enters_twice(name, own_thread):
    row = ROWS[name]

    def twice() -> None:
        row.prepare(0)
        entered = row.make()
        state_inside = []

        def again() -> None:
            state_inside.append(row.state())
            with_error = row.exclusive
            try:
                with entered():
                    assert not with_error
                    again_inside.append(row.state())
            except RuntimeError:
                assert with_error
            state_inside.append(row.state())

        again_inside: list[object] = []
        assert use(row, entered(), again)
        assert state_inside[0] == state_inside[1]

    own_thread(twice)


@pytest.mark.parametrize("name", ROWS)
def test_an_exception_restores_the_state(name, own_thread):
    row = ROWS[name]

    def fail() -> None:
        row.prepare(0)
        before = row.state()
        for _ in range(2):
            entered = row.make()
            with pytest.raises(ZeroDivisionError), entered():
                _ = 1 / 0
            assert row.state() == before

    own_thread(fail)


def test_a_function_in_autocast_may_call_itself():
    @openreg.amp.autocast(dtype=torch.bfloat16)
    def depth(left: int) -> torch.dtype:
        if left:
            depth(left - 1)
        return torch.mm(torch.ones(2, 2, device=DEVICE), torch.ones(2, 2, device=DEVICE)).dtype

    assert depth(2) == torch.bfloat16
    assert not torch.is_autocast_enabled(DEVICE)


def test_leaving_what_was_not_entered_is_an_error():
    with pytest.raises(RuntimeError, match="this thread has not entered"):
        openreg.device(1).__exit__(None, None, None)
    assert torch.accelerator.current_device_index() == 0
