"""torch.compile(mode="reduce-overhead"): Inductor's trees of graphs capture compiled programs and replay them."""

from __future__ import annotations

import copy
import functools
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from child_processes import run_python
from torch import nn
from torch._dynamo.utils import counters
from torch._higher_order_ops.while_loop import while_loop
from torch._inductor import cudagraph_trees
from torch.testing import assert_close


def forget_programs() -> None:
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def segments_of_pools() -> list[dict[str, Any]]:
    return [segment for segment in torch.cuda.memory_snapshot() if segment["segment_pool_id"] != (0, 0)]


@pytest.fixture(autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    forget_programs()
    before = torch.cuda.memory_allocated()
    yield
    forget_programs()
    assert segments_of_pools() == []
    assert torch.cuda.memory_allocated() == before


class Counts:
    """How many graphs of compiled programs have been captured and replayed."""

    captures = 0
    replays = 0

    def captured(self, graph: torch.cuda.CUDAGraph) -> None:
        self.captures += 1

    def replayed(self, graph: torch.cuda.CUDAGraph) -> None:
        self.replays += 1


@pytest.fixture
def counts() -> Iterator[Counts]:
    counts = Counts()
    handles = [
        torch.cuda.graphs.register_graph_capture_end_hook(counts.captured),
        torch.cuda.graphs.register_graph_replay_end_hook(counts.replayed),
    ]
    yield counts
    for handle in handles:
        handle.remove()


def reduce_overhead(function: Any, **options: Any) -> Callable[..., Any]:
    return torch.compile(function, mode="reduce-overhead", **options)


def chain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = (x @ w).sin() + x
    return x


def weights(device: str = "cuda") -> torch.Tensor:
    return 0.1 * torch.randn(8, 8, device=device)


def test_a_program_is_captured_once_and_replayed(counts: Counts) -> None:
    w = weights()
    run = reduce_overhead(chain)
    with torch.no_grad():
        for call in range(6):
            x = torch.randn(4, 8, device="cuda")
            assert_close(run(x, w), chain(x, w))
            assert counts.replays == call  # the first call only warms up
    assert counts.captures == 2  # one is empty, and keeps the pool


@pytest.mark.parametrize(
    "access",
    [
        lambda x: x + 1,
        lambda x: torch.ones(4, 8, device="cuda").add_(x),
        lambda x: x.add_(1),
        lambda x: x.cpu(),
        lambda x: x[0, 0].item(),
        lambda x: x.nonzero(),
        lambda x: x.unique(),
        lambda x: x.data_ptr(),
        lambda x: str(x),
        lambda x: copy.deepcopy(x),
        lambda x: reduce_overhead(torch.cos)(x),
    ],
    ids=[
        "reads",
        "other",
        "writes",
        "copies",
        "item",
        "sizes",
        "fallback",
        "address",
        "prints",
        "deepcopy",
        "compiled",
    ],
)
def test_a_result_that_the_next_call_has_overwritten_raises(access: Callable[[torch.Tensor], Any]) -> None:
    x, w = torch.randn(4, 8, device="cuda"), weights()
    run = reduce_overhead(chain)
    with torch.no_grad():
        results = [run(x, w)]
        for _ in range(2):  # the result of the warm-up, and that of the capture
            view = results[-1][1:]
            results.append(run(x, w))
            for each in (results[-2], view):
                with pytest.raises(RuntimeError, match="output of CUDAGraphs that has been overwritten"):
                    access(each)
            assert_close(results[-1], chain(x, w))
        assert run(x, w) is results[-1]  # replays return one tensor again and again


def test_results_of_one_step_do_not_overwrite_each_other(counts: Counts) -> None:
    w = weights()
    run = reduce_overhead(chain)
    with torch.no_grad():
        for _ in range(4):
            torch.compiler.cudagraph_mark_step_begin()
            first = torch.randn(4, 8, device="cuda")
            results = [run(first, w)]
            for _ in range(3):
                results.append(run(results[-1], w))
            expected = first
            for result in results:
                expected = chain(expected, w)
                assert_close(result, expected)
    # In the first step all calls warm up; the others are a path of four graphs.
    assert counts.replays == 3 * 4


class Branches:
    """Two programs that may follow another one, whose result both need: a tree with a node and its two children."""

    def __init__(self) -> None:
        self.w = 0.1 * torch.randn(64, 64, device="cuda")
        self.trunk, self.left, self.right = map(reduce_overhead, (self.root, self.sine, self.cosine))

    def root(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.w).relu() + 1

    def sine(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.w).sin() * 2

    def cosine(self, x: torch.Tensor) -> torch.Tensor:
        return (x.cos() @ self.w).cos()

    def step(self, branch: str) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(16, 64, device="cuda")
        trunk = self.trunk(x)
        end = (self.left if branch == "l" else self.right)(trunk)
        assert_close(end, (self.sine if branch == "l" else self.cosine)(trunk))
        assert_close(trunk, self.root(x))


def test_a_branch_is_captured_after_its_root_was_replayed() -> None:
    programs = Branches()
    with torch.no_grad():
        for branch in "llllrrrrlrlr":
            programs.step(branch)
    manager = cudagraph_trees.get_manager(0)
    assert manager is not None
    assert manager.debug_checkpointing_counter == 2  # for the warm-up of the other branch, and for its capture
    (root,) = manager.get_roots()
    assert root.num_descendants() == 2


def test_a_result_that_died_before_the_branch_does_not_take_memory() -> None:
    w = torch.randn(256, 256, device="cuda")

    def split(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ w, x + w

    trunk, left, right = map(reduce_overhead, (split, lambda x: x.sin(), lambda x: x.cos()))
    with torch.no_grad():
        for call in range(9):
            torch.compiler.cudagraph_mark_step_begin()
            x = torch.randn(256, 256, device="cuda")
            kept, died = trunk(x)
            del died
            assert_close((left if call < 5 else right)(kept), (torch.sin if call < 5 else torch.cos)(x @ w))
            assert_close(kept, x @ w)


def loss_of_steps(mode: str | None, backend: str = "inductor") -> tuple[list[float], list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.3), nn.LayerNorm(32), nn.Linear(32, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    run = torch.compile(model, mode=mode)
    losses = []
    for step in range(8):
        x = torch.randn(64, 16, device="cuda", generator=torch.Generator("cuda").manual_seed(step))
        loss = nn.functional.mse_loss(run(x), x.sum(1, keepdim=True))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [each.detach().clone() for each in model.parameters()]


def test_training_is_that_of_the_default_mode(counts: Counts) -> None:
    expected, weights = loss_of_steps(None)
    assert counts.captures == 0
    losses, same_weights = loss_of_steps("reduce-overhead")
    assert losses == expected and losses[-1] < losses[0]
    assert_close(same_weights, weights, rtol=0, atol=0)
    assert counts.replays == 2 * 7  # forward and backward, in each step but the first
    assert counts.captures == 3  # weights that change in place are captured once


def test_gradients_are_accumulated() -> None:
    torch.manual_seed(0)
    model = nn.Linear(8, 8).cuda()
    reference = copy.deepcopy(model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    run = reduce_overhead(model)
    for _ in range(5):
        x = torch.randn(4, 8, device="cuda")
        run(x).sum().backward()
        reference(x).sum().backward()
    for parameter, expected in zip(model.parameters(), reference.parameters(), strict=True):
        assert_close(parameter.grad, expected.grad)


def test_numbers_are_random_in_each_replay_and_repeat_with_the_seed() -> None:
    run = reduce_overhead(lambda x: torch.nn.functional.dropout(x, 0.5))
    x = torch.ones(64, device="cuda")

    def draw() -> list[list[float]]:
        torch.manual_seed(7)
        return [run(x).tolist() for _ in range(4)]

    draw()
    numbers = draw()
    assert numbers == draw()
    assert len({tuple(each) for each in numbers}) == 4


@pytest.mark.parametrize("dynamic", [False, True])
def test_each_shape_has_its_graph(counts: Counts, dynamic: bool) -> None:
    w = weights()
    run = reduce_overhead(chain, dynamic=dynamic)
    with torch.no_grad():
        for _ in range(3):
            for rows in (2, 3, 5):
                x = torch.randn(rows, 8, device="cuda")
                assert_close(run(x, w), chain(x, w))
    assert counts.replays == 3 * 2
    assert counts.captures == 3 + 1


def test_a_program_that_changes_its_input_runs_without_a_graph_and_says_so(
    counts: Counts, caplog: pytest.LogCaptureFixture
) -> None:
    def change(x: torch.Tensor) -> torch.Tensor:
        x.add_(2)
        return x * 3

    counters.clear()
    run = reduce_overhead(change)
    with caplog.at_level("WARNING"):
        for _ in range(3):
            x = torch.ones(4, device="cuda")
            assert run(x).tolist() == [9] * 4 and x.tolist() == [3] * 4
    assert counters["inductor"]["cudagraph_skips"] == 1
    assert counts.replays == 0


def test_buffers_and_parameters_are_changed_in_place(counts: Counts) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(2, device="cuda"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += x
            return self.calls * 2

    module = Counter()
    run = reduce_overhead(module)
    for call in range(1, 6):
        assert run(torch.ones(2, device="cuda")).tolist() == [2 * call] * 2
        assert module.calls.tolist() == [call] * 2
    assert counts.replays == 4


def test_work_for_the_cpu_stays_between_two_graphs(counts: Counts) -> None:
    def around(x: torch.Tensor) -> torch.Tensor:
        halfway = (x.sin() + 1).cpu() * 2
        return halfway.cuda().cos() + x

    run = reduce_overhead(around)
    for call in range(4):
        x = torch.randn(8, device="cuda")
        assert_close(run(x), around(x))
        assert counts.replays == 2 * call


def test_a_program_with_a_branch_runs_without_a_graph(counts: Counts) -> None:
    def either(flag: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, torch.sin, torch.cos, (x + 1,))

    counters.clear()
    run = reduce_overhead(either)
    for call in range(4):
        x = torch.randn(8, device="cuda")
        expected = (x + 1).cos() if call % 2 else (x + 1).sin()
        assert_close(run(torch.tensor(call % 2 == 0, device="cuda"), x), expected)
    assert counts.replays == 0
    assert counters["inductor"]["cudagraph_skips"] == 1


def test_a_loop_stays_between_graphs(counts: Counts) -> None:
    def three_times(x: torch.Tensor) -> torch.Tensor:
        start = (torch.zeros((), dtype=torch.int64, device="cuda"), x * 2)
        return while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, y.sin() + 1), start)[1] * 3

    run = reduce_overhead(three_times)
    for call in range(4):
        x = torch.randn(8, device="cuda")
        expected = x * 2
        for _ in range(3):
            expected = expected.sin() + 1
        assert_close(run(x), expected * 3)
        assert counts.replays == 2 * call


def test_each_device_has_its_tree(counts: Counts) -> None:
    runs = [reduce_overhead(chain) for _ in range(2)]
    with torch.no_grad():
        for _ in range(4):
            for index, run in enumerate(runs):
                x, w = torch.randn(4, 8, device=f"cuda:{index}"), weights(f"cuda:{index}")
                assert_close(run(x, w), chain(x, w))
    assert counts.replays == 2 * 3
    assert {segment["device"] for segment in segments_of_pools()} == {0, 1}
    assert torch.cuda.current_device() == 0


def test_a_program_on_two_devices_runs_without_a_graph(counts: Counts) -> None:
    counters.clear()
    run = reduce_overhead(lambda x, y: (x + 1, y + 2))
    for _ in range(3):
        first, second = run(torch.zeros(2, device="cuda:0"), torch.zeros(2, device="cuda:1"))
        assert first.tolist() == [1, 1] and second.tolist() == [2, 2]
    assert counts.replays == 0
    assert counters["inductor"]["cudagraph_skips"] == 1


def test_the_backend_of_graphs_alone_uses_the_same_trees(counts: Counts) -> None:
    x, w = torch.randn(4, 8, device="cuda"), weights()
    run = torch.compile(chain, backend="cudagraphs")
    with torch.no_grad():
        for call in range(4):
            assert_close(run(x, w), chain(x, w))
            assert counts.replays == call


def test_max_autotune_captures_too(counts: Counts) -> None:
    x, w = torch.randn(4, 8, device="cuda"), weights()
    run = torch.compile(chain, mode="max-autotune")
    with torch.no_grad():
        for _ in range(3):
            assert_close(run(x, w), chain(x, w))
    assert counts.replays == 2


def test_a_result_outlives_its_program() -> None:
    x, w = torch.randn(4, 8, device="cuda"), weights()
    run = reduce_overhead(chain)
    with torch.no_grad():
        for _ in range(3):
            result = run(x, w)
        expected = chain(x, w)
    del run
    torch._dynamo.reset()
    gc.collect()
    assert_close(result, expected)


def test_threads_have_their_own_trees() -> None:
    w = weights()
    run = reduce_overhead(chain)
    with torch.no_grad():
        run(torch.randn(4, 8, device="cuda"), w)
    failures: list[str] = []

    def work(seed: int) -> None:
        try:
            with torch.no_grad():
                for call in range(6):
                    x = torch.full((4, 8), seed + call / 10, device="cuda")
                    assert_close(run(x, w), chain(x, w))
        except Exception as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


PROGRAM = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1))
model = model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = torch.compile(model, mode="reduce-overhead")
replays = []
torch.cuda.graphs.register_graph_replay_end_hook(replays.append)
for step in range(6):
    optimizer.zero_grad()
    loss = run(torch.randn(8, 16, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
print(len(replays))
"""


@functools.cache
def output_of_program() -> tuple[str, ...]:
    result = run_python("-c", PROGRAM)
    assert result.returncode == 0, result.stderr
    return tuple(result.stdout.split())


@pytest.mark.parametrize(
    "setting",
    [
        {"TORCH_OPENREG_SCHEDULE": "latest"},
        {"TORCH_OPENREG_SCHEDULE": "random:3"},
        {"TORCH_OPENREG_DETECT_RACES": "1"},
        {"TORCH_OPENREG_EXECUTOR": "process"},
        {"TORCH_OPENREG_LAUNCH_BLOCKING": "1"},
        {"TORCH_OPENREG_DEBUG_MEMORY": "1"},
    ],
    ids=lambda setting: "=".join(*setting.items()).removeprefix("TORCH_OPENREG_"),
)
def test_settings_of_the_device_do_not_change_the_results(setting: dict[str, str]) -> None:
    *losses, replays = output_of_program()
    assert len(losses) == 6 and replays == "10"
    result = run_python("-c", PROGRAM, **setting)
    assert result.returncode == 0, result.stderr
    debugs = "TORCH_OPENREG_DEBUG_MEMORY" in setting
    assert result.stdout.split() == [*losses, "0" if debugs else "10"]
    assert ("does not capture graphs with TORCH_OPENREG_DEBUG_MEMORY=1" in result.stderr) == debugs
