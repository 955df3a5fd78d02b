"""Adversarial schedules: what a program fails to order shows in every run, and a correct one computes the same bits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from devices import DEVICE

openreg = torch.openreg
ADVERSARIAL = ["latest", "random:1", "random:2", "random:3"]


@pytest.fixture(autouse=True)
def _schedule_is_restored() -> Iterator[None]:
    before = openreg.get_schedule()
    yield
    openreg.set_schedule(before)


def test_the_schedule_is_what_was_set():
    assert openreg.get_schedule() == os.environ.get("TORCH_OPENREG_SCHEDULE", "earliest")
    for schedule in (*ADVERSARIAL, f"random:{2**64 - 1}", "earliest"):
        openreg.set_schedule(schedule)
        assert openreg.get_schedule() == schedule
    openreg.set_schedule("latest")
    openreg.set_schedule("default")
    assert openreg.get_schedule() == "earliest"


def test_a_change_waits_for_the_devices():
    for schedule in (*ADVERSARIAL, "earliest"):
        host = torch.zeros(1000).pin_memory()
        host.copy_(torch.ones(1000, device=DEVICE), non_blocking=True)
        openreg.set_schedule(schedule)
        assert host.sum() == 1000


def consumer_without_an_order() -> torch.Tensor:
    x = torch.zeros(1000, device=DEVICE)
    torch.accelerator.synchronize()
    side = torch.Stream(DEVICE)
    x.add_(1)
    with side:
        return (x * 2).cpu()


def reads_pinned_memory_too_early() -> torch.Tensor:
    host = torch.zeros(1000).pin_memory()
    host.copy_(torch.ones(1000, device=DEVICE), non_blocking=True)
    return host.clone()


def overwrites_pinned_memory_too_early() -> torch.Tensor:
    host = torch.ones(1000).pin_memory()
    x = host.to(DEVICE, non_blocking=True)
    host.zero_()
    return x.cpu()


def frees_what_another_stream_reads() -> torch.Tensor:
    side = torch.Stream(DEVICE)
    x = torch.ones(1000, device=DEVICE)
    side.wait_stream(torch.accelerator.current_stream())
    with side:
        y = x + 0
    del x  # without record_stream
    torch.zeros(1000, device=DEVICE)
    torch.accelerator.current_stream().synchronize()
    with side:
        return y.cpu()


@pytest.mark.no_race_detection("these programs race")
@pytest.mark.parametrize(
    "program, right",
    [
        (consumer_without_an_order, 2.0),
        (reads_pinned_memory_too_early, 1.0),
        (overwrites_pinned_memory_too_early, 1.0),
        (frees_what_another_stream_reads, 1.0),
    ],
)
def test_latest_shows_what_is_not_ordered_in_every_run(program: Callable[[], torch.Tensor], right: float):
    openreg.set_schedule("latest")
    for _ in range(20):
        assert (program() != right).all()
        torch.accelerator.synchronize()


# Programs whose host waits for the whole device. Each returns what it computed.


def uses_without_a_wait() -> torch.Tensor:
    x = torch.zeros(1000, device=DEVICE)
    side = torch.Stream()
    openreg.synchronize()
    x.fill_(3)
    with openreg.stream(side):
        total = x.sum()
    openreg.synchronize()
    return total


def waits_for_too_little() -> torch.Tensor:
    x = torch.zeros(1000, device=DEVICE)
    main, side = openreg.current_stream(), openreg.Stream()
    side.wait_stream(main)
    x.fill_(3)
    with openreg.stream(side):
        total = x.sum()
    openreg.synchronize()
    return total


def uses_a_result_without_its_wait() -> torch.Tensor:
    gradient = torch.ones(1000, device=DEVICE)
    main, communication = openreg.current_stream(), openreg.Stream()
    communication.wait_stream(main)
    with openreg.stream(communication):
        gradient.mul_(3)
    total = gradient.sum()
    openreg.synchronize()
    return total


def uses_memory_again_too_early() -> torch.Tensor:
    main, side = openreg.current_stream(), openreg.Stream()
    totals = []
    for value in (3.0, 4.0):
        x = torch.full((1000,), value, device=DEVICE)
        side.wait_stream(main)
        with openreg.stream(side):
            totals.append(x.sum())
        del x  # without record_stream
    openreg.synchronize()
    return totals[0]


@pytest.mark.no_race_detection("these programs race")
@pytest.mark.parametrize(
    "program",
    [uses_without_a_wait, waits_for_too_little, uses_a_result_without_its_wait, uses_memory_again_too_early],
)
def test_latest_shows_it_also_if_the_host_waits_for_the_device(program: Callable[[], torch.Tensor]):
    openreg.set_schedule("latest")
    for _ in range(20):
        assert program().item() != 3000


def graph_that_lacks_an_edge(consumer_is_on_the_side: bool) -> Callable[[], torch.Tensor]:
    x = torch.zeros(1000, device=DEVICE)
    side = openreg.Stream()
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        main = openreg.current_stream()
        producer, consumer = (main, side) if consumer_is_on_the_side else (side, main)
        x.zero_()
        side.wait_stream(main)
        with openreg.stream(producer):
            x.add_(3)
        with openreg.stream(consumer):
            total = x.sum()
        main.wait_stream(side)

    def replay() -> torch.Tensor:
        graph.replay()
        return total

    return replay


@pytest.mark.no_race_detection("these graphs race")
@pytest.mark.parametrize("wait", [openreg.synchronize, lambda: openreg.current_stream().synchronize()])
@pytest.mark.parametrize("consumer_is_on_the_side", [False, True])
def test_schedules_choose_among_the_nodes_of_a_graph(consumer_is_on_the_side: bool, wait: Callable[[], None]):
    openreg.set_schedule("earliest")
    replay = graph_that_lacks_an_edge(consumer_is_on_the_side)

    def total() -> float:
        result = replay()
        wait()
        return result.item()

    openreg.set_schedule("latest")
    assert {total() for _ in range(20)} == {0.0}
    seen = set()
    for seed in range(20):
        openreg.set_schedule(f"random:{seed}")
        seen.add(total())
    assert seen == {0.0, 3000.0}


def test_latest_shows_that_the_host_does_not_wait_before_elapsed_time():
    openreg.set_schedule("latest")
    for _ in range(20):
        start, end = openreg.Event(enable_timing=True), openreg.Event(enable_timing=True)
        start.record()
        torch.ones(1000, device=DEVICE)
        end.record()
        with pytest.raises(RuntimeError, match="completed before calculating elapsed time"):
            start.elapsed_time(end)
        end.synchronize()
        assert start.elapsed_time(end) > 0


@pytest.mark.no_race_detection("the program races")
def test_a_seed_shows_it_always_or_never():
    results = {}
    for schedule in [f"random:{seed}" for seed in range(20)] * 2:
        openreg.set_schedule(schedule)
        results.setdefault(schedule, set()).add(consumer_without_an_order()[0].item())
        torch.accelerator.synchronize()
    assert all(len(values) == 1 for values in results.values())
    assert len(set.union(*results.values())) == 2


def training_step() -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Dropout(), torch.nn.ReLU(), torch.nn.Linear(30, 5))
    model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    losses = []
    for _ in range(3):
        loss = model(torch.randn(8, 20, device=DEVICE)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(parameter.detach() for parameter in model.parameters())]


def two_streams_with_events() -> list[torch.Tensor]:
    side = torch.Stream(DEVICE)
    x = torch.arange(1000.0, device=DEVICE)
    for _ in range(5):
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            y = x.sin()
            event = side.record_event()
        torch.accelerator.current_stream().wait_event(event)
        x = x + y
        y.record_stream(torch.accelerator.current_stream())
    return [x]


def pinned_copies_and_an_event() -> list[torch.Tensor]:
    host = torch.arange(1000.0).pin_memory()
    back = torch.empty(1000).pin_memory()
    back.copy_(host.to(DEVICE, non_blocking=True) + 1, non_blocking=True)
    event = torch.accelerator.current_stream().record_event()
    while not event.query():
        pass
    return [back]


def graph_replays() -> list[torch.Tensor]:
    x = torch.zeros(100, device=DEVICE)
    side = torch.Stream(DEVICE)
    graph = openreg.CUDAGraph()
    with openreg.graph(graph):
        side.wait_stream(torch.accelerator.current_stream())
        with side:
            y = x + 1
        torch.accelerator.current_stream().wait_stream(side)
        x.add_(y)
    for _ in range(5):
        graph.replay()
    return [x]


def two_devices() -> list[torch.Tensor]:
    x = torch.arange(1000.0, device=f"{DEVICE}:0")
    for _ in range(5):
        x = (x.to(f"{DEVICE}:1", non_blocking=True) + 1).to(f"{DEVICE}:0", non_blocking=True) * 2
    return [x]


def large_copies() -> list[torch.Tensor]:
    host = torch.arange(2.0**21).pin_memory()
    return [host.to(DEVICE, non_blocking=True) + 1]


def random_numbers() -> list[torch.Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(3)
    return [torch.rand(100, device=DEVICE, generator=generator) for _ in range(5)]


@pytest.mark.parametrize(
    "program",
    [
        training_step,
        two_streams_with_events,
        pinned_copies_and_an_event,
        graph_replays,
        two_devices,
        large_copies,
        random_numbers,
    ],
)
def test_a_correct_program_computes_the_same_bits(program: Callable[[], list[torch.Tensor]]):
    def results(schedule: str) -> list[torch.Tensor]:
        openreg.set_schedule(schedule)
        return [tensor.cpu() for tensor in program()]

    expected = results("earliest")
    for schedule in ADVERSARIAL:
        assert all(torch.equal(a, b) for a, b in zip(results(schedule), expected, strict=True)), schedule


def test_a_thread_that_sleeps_does_not_keep_another_from_its_results():
    for schedule in ADVERSARIAL:
        openreg.set_schedule(schedule)
        event = torch.ones(10, device=DEVICE).sum() + 1
        seen = []
        ready = threading.Event()

        def wait_for(value=event, seen=seen, ready=ready):
            seen.append(value.item())
            ready.set()

        thread = threading.Thread(target=wait_for)
        thread.start()
        assert ready.wait(30)
        thread.join()
        assert seen == [11.0]


@pytest.mark.parametrize("schedule", ADVERSARIAL)
def test_the_environment_sets_the_schedule_and_work_at_exit_runs(run_forked, schedule):
    result = run_forked(
        "import torch\n"
        "print(torch.openreg.get_schedule())\n"
        "torch.ones(2, device='openreg').index_select(0, torch.tensor([5], device='openreg'))\n",
        TORCH_OPENREG_SCHEDULE=schedule,
    )
    assert result.stdout == schedule + "\n"
    assert "index out of range" in result.stderr


def test_a_malformed_schedule_is_an_error_at_the_first_use(run_forked):
    result = run_forked("import torch\ntorch.ones(1, device='openreg')", TORCH_OPENREG_SCHEDULE="random", check=False)
    assert 'TORCH_OPENREG_SCHEDULE is malformed (got "random", expected "earliest", "latest", or' in result.stderr


@pytest.mark.no_race_detection("the program races")
def test_it_can_be_set_before_the_first_use(run_forked):
    result = run_forked(
        "import torch\n"
        "torch.openreg.set_schedule('latest')\n"
        "print(torch.openreg.is_initialized(), torch.openreg.get_schedule())\n"
        "host = torch.zeros(1000).pin_memory()\n"
        "host.copy_(torch.ones(1000, device='openreg'), non_blocking=True)\n"
        "print(host.sum().item())\n"
        "torch.accelerator.synchronize()\n"
        "print(host.sum().item())\n"
    )
    assert result.stdout == "False latest\n0.0\n1000.0\n"
