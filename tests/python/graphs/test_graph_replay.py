"""Replays: their place among other work, on streams and threads, failures, and what a profiler sees."""

from __future__ import annotations

import gc
import threading
import warnings

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

openreg = torch.openreg
LONG = 40_000_000  # cycles


def incremented(x: torch.Tensor, **options: bool) -> torch.cuda.CUDAGraph:
    graph = openreg.CUDAGraph(**options)
    with openreg.graph(graph):
        x += 1
    return graph


def test_replays_queue_behind_each_other():
    x = torch.zeros(4, device="openreg")
    graph = incremented(x)
    openreg._sleep(LONG)
    for _ in range(100):
        graph.replay()
    x *= 2
    graph.replay()
    assert x.tolist() == [201.0] * 4


def test_a_compiled_program_is_captured():
    run = torch.compile(lambda x: (x.sin() * 2 + x).softmax(-1))
    x = torch.randn(8, 16, device="openreg")
    run(x)
    openreg.synchronize()
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        y = run(x)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(y, run(x))


def test_replays_on_several_streams_run_one_after_the_other():
    x = torch.zeros(1000, device="openreg")
    graph = incremented(x)
    streams = [openreg.Stream() for _ in range(4)]
    openreg.synchronize()
    for i in range(200):
        with streams[i % 4]:
            graph.replay()
    openreg.synchronize()
    assert x.tolist() == [200.0] * 1000


def test_replays_of_several_threads():
    x = torch.zeros(1000, device="openreg")
    graph = incremented(x)

    def run() -> None:
        with openreg.Stream():
            for _ in range(100):
                graph.replay()
            torch.accelerator.current_stream().synchronize()

    openreg.synchronize()
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert x.tolist() == [400.0] * 1000


def test_a_replay_has_its_place_among_the_work_of_other_streams():
    x = torch.zeros(4, device="openreg")
    graph, side = openreg.CUDAGraph(), openreg.Stream()
    with openreg.graph(graph):
        y = x * 10
    first = openreg.Stream()
    first.wait_stream(torch.accelerator.current_stream())
    with first:
        openreg._sleep(LONG)
        x += 7
    side.wait_stream(first)
    with side:
        graph.replay()
    torch.accelerator.current_stream().wait_stream(side)
    assert y.tolist() == [70.0] * 4


@pytest.mark.parametrize("end", ["drop", "reset"])
def test_a_graph_that_goes_while_a_replay_is_queued_still_runs(end):
    x = torch.arange(4.0, device="openreg")
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        y = (x * 2).exp()
        x.copy_(y)
    del y
    openreg._sleep(LONG)
    graph.replay()
    if end == "reset":
        graph.reset()
    del graph
    gc.collect()
    others = [torch.full((4,), -1.0, device="openreg") for _ in range(50)]
    assert x.tolist() == (torch.arange(4.0) * 2).exp().tolist()
    del others


def test_a_graph_with_lanes_that_goes_while_replays_are_queued_still_runs():
    x = torch.zeros(1000, device="openreg")
    graph, side = openreg.CUDAGraph(), openreg.Stream()
    with openreg.graph(graph):
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            a = x + 1
        b = x + 2
        torch.accelerator.current_stream().wait_stream(side)
        x.copy_(a + b)
    openreg._sleep(LONG)
    for _ in range(3):
        graph.replay()
    del graph, a, b, side
    gc.collect()
    assert x[0].item() == 21.0


def test_a_failure_in_a_replay_is_raised_once_and_the_next_replay_works():
    table = torch.arange(12.0, device="openreg").reshape(4, 3)
    indices = torch.tensor([0, 1], device="openreg")
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        y = torch.nn.functional.embedding(indices, table) + 1
    for bad in (False, True, False, True, True, False, False):
        indices.copy_(torch.tensor([3, 99 if bad else 2]))
        graph.replay()
        if bad:
            with pytest.raises(torch.AcceleratorError, match="aten::index_select"):
                openreg.synchronize()
            openreg.synchronize()
        else:
            assert y.tolist() == [[10.0, 11.0, 12.0], [7.0, 8.0, 9.0]]


def test_a_failure_on_a_forked_stream_is_that_of_the_replays_stream():
    table, indices = torch.ones(4, 3, device="openreg"), torch.tensor([0, 1], device="openreg")
    graph, side = openreg.CUDAGraph(), openreg.Stream()
    with openreg.graph(graph):
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            y = torch.nn.functional.embedding(indices, table)
        z = table * 2
        torch.accelerator.current_stream().wait_stream(side)
        total = y.sum() + z.sum()
    indices.fill_(9)
    stream = openreg.Stream()
    stream.wait_stream(torch.accelerator.current_stream())
    with stream:
        graph.replay()
        with pytest.raises(torch.AcceleratorError, match="aten::index_select"):
            stream.synchronize()
    openreg.synchronize()
    indices.fill_(1)
    graph.replay()
    assert total.item() == 30.0


def test_a_trace_shows_replays_and_their_kernels_on_their_stream():
    x = torch.ones(8, device="openreg")
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        y = x.exp()
        y = y.sin()
    stream = openreg.Stream()
    openreg.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
        with stream:
            for _ in range(3):
                graph.replay()
        openreg.synchronize()
    names = [event.name for event in profiler.events()]
    assert names.count("openregGraphLaunch") == 3
    kernels = [e for e in profiler.events() if e.device_type.name == "OPENREG" and e.name.startswith("aten::")]
    assert [e.name for e in sorted(kernels, key=lambda e: e.time_range.start)] == ["aten::exp", "aten::sin"] * 3
    assert len({e.device_resource_id for e in kernels}) == 1


# --- Training steps ---

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "SGD, foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "SGD, fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, capturable=True, foreach=False),
    "Adam, foreach": lambda p: torch.optim.Adam(p, lr=0.01, capturable=True, foreach=True, amsgrad=True),
    "Adam, fused": lambda p: torch.optim.Adam(p, lr=0.01, capturable=True, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=0.01, capturable=True, fused=True),
    "Adam, tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01, device="openreg"), capturable=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, capturable=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01, capturable=True),
}


class Training:
    """A network, its optimizer, and a step over inputs that stay in one place."""

    def __init__(self, optimizer: str) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Conv2d(2, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.LayerNorm(36),
            torch.nn.Linear(36, 16),
            torch.nn.Dropout(0.2),
            torch.nn.GELU(),
            torch.nn.Linear(16, 5),
        ).to("openreg")
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.x = torch.zeros(6, 2, 8, 8, device="openreg")
        self.y = torch.zeros(6, dtype=torch.long, device="openreg")
        self.loss = torch.zeros((), device="openreg")

    def feed(self, step: int) -> None:
        generator = torch.Generator().manual_seed(step)
        self.x.copy_(torch.randn(self.x.shape, generator=generator))
        self.y.copy_(torch.randint(5, self.y.shape, generator=generator))

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.loss = loss.detach()
        self.optimizer.step()

    def state(self) -> list[torch.Tensor]:
        tensors = [self.loss, *self.model.state_dict().values()]
        for state in self.optimizer.state.values():
            tensors += [value for value in state.values() if isinstance(value, torch.Tensor)]
        return [tensor.detach().clone().cpu() for tensor in tensors]


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_captured_training_step_equals_eager_bit_by_bit(optimizer):
    eager, captured = Training(optimizer), Training(optimizer)
    side = openreg.Stream()
    for each in (eager, captured):  # warmed up alike, on a side stream
        torch.manual_seed(1)
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            for step in range(3):
                each.feed(step)
                each.step()
        torch.accelerator.current_stream().wait_stream(side)
    graph = openreg.CUDAGraph()
    captured.optimizer.zero_grad(set_to_none=True)
    with openreg.graph(graph):
        captured.step()
    for step in range(3, 8):
        for each in (eager, captured):
            each.feed(step)
        openreg.manual_seed(step)
        eager.step()
        after = openreg.get_rng_state()
        openreg.manual_seed(step)
        graph.replay()
        assert torch.equal(openreg.get_rng_state(), after)
        for got, expected in zip(captured.state(), eager.state(), strict=True):
            assert torch.equal(got, expected), f"step {step}"


def test_an_optimizer_that_is_not_capturable_refuses():
    training = Training("SGD")
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.NAdam):
        training.optimizer = kind(training.model.parameters())
        training.step()
        with pytest.raises(RuntimeError, match=rf"step\(\) .*{kind.__name__} .*capturable"):
            with openreg.graph(openreg.CUDAGraph()):
                training.step()
    assert not openreg.is_current_stream_capturing()


def test_an_optimizer_that_cannot_be_capturable_refuses():
    training = Training("SGD")
    training.optimizer = torch.optim.Adafactor(training.model.parameters())
    training.step()
    with pytest.raises(RuntimeError, match=r"step\(\) of Adafactor cannot be captured: .* has no option capturable"):
        with openreg.graph(openreg.CUDAGraph()):
            training.step()


@pytest.mark.usefixtures("deterministic")
def test_gradients_of_a_captured_backward_pass_with_scaled_losses():
    def run(replayed: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4, device="openreg")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("openreg", init_scale=64.0)
        x = torch.zeros(5, 8, device="openreg")

        def forward_backward() -> None:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("openreg", dtype=torch.bfloat16, cache_enabled=False):
                loss = model(x).square().mean()
            scaler.scale(loss).backward()

        side = openreg.Stream()
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            for _ in range(3):
                forward_backward()
        torch.accelerator.current_stream().wait_stream(side)
        graph = openreg.CUDAGraph()
        if replayed:
            optimizer.zero_grad(set_to_none=True)
            with openreg.graph(graph):
                forward_backward()
        seen = []
        for step in range(5):
            x.copy_(torch.full((5, 8), float(step + 1)) + torch.arange(8.0))
            graph.replay() if replayed else forward_backward()
            scaler.step(optimizer)
            scaler.update()
            seen += [p.detach().cpu().clone() for p in model.parameters()]
        return seen

    for got, expected in zip(run(True), run(False), strict=True):
        assert torch.equal(got, expected)


def test_a_replay_waits_for_nothing():
    x = torch.zeros(4, device="openreg")
    graph = incremented(x)
    openreg.set_sync_debug_mode("error")
    try:
        before = openreg.launch_stats()["host_waits"]
        for _ in range(10):
            graph.replay()
        assert openreg.launch_stats()["host_waits"] == before
    finally:
        openreg.set_sync_debug_mode("default")
    assert x[0].item() == 10.0


def test_warnings_of_kernels_are_given_at_the_capture_and_not_by_every_replay():
    x = torch.arange(3.0, device="openreg")
    wrong = torch.empty(1, device="openreg")
    graph = openreg.CUDAGraph()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with openreg.graph(graph):
            torch.add(x, 1, out=wrong)
        given = len(caught)
        for _ in range(3):
            graph.replay()
        openreg.synchronize()
        assert given >= 1 and len(caught) == given
    assert wrong.tolist() == [1.0, 2.0, 3.0]
