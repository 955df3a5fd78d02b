"""Models whose layers are on different ranks learn as in one process, by each of PyTorch's schedules."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_in_turn, run_ranks
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipeline,
)
from torch.distributed.pipelining.schedules import ScheduleDualPipeV

pytestmark = pytest.mark.any_device

STEPS, BATCH, PARTS, WIDTH, LAYERS = 4, 16, 8, 12, 8
ONE_STAGE = {each.__name__: each for each in (ScheduleGPipe, Schedule1F1B)}
V_SHAPED = ScheduleZBVZeroBubble, ScheduleDualPipeV
LOOPED = ScheduleLoopedBFS, ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble
TWO_STAGES = {each.__name__: each for each in (*LOOPED, *V_SHAPED)}


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.linear(self.norm(x)).relu()


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Layer() for _ in range(LAYERS)])


def batches() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(BATCH, WIDTH, generator=generator) for _ in range(STEPS)]


def loss_of(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return (y - x.roll(1, 1)).square().mean()


def train(net: nn.Module, step: Callable[[torch.Tensor], float]) -> list[float]:
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for batch in batches():
        optimizer.zero_grad()
        losses.append(step(batch))
        optimizer.step()
    return losses


def one_process() -> list[float]:
    net = model()

    def step(batch: torch.Tensor) -> float:
        loss = loss_of(net(batch), batch)
        loss.backward()
        return loss.item()

    return train(net, step)


def steps_of(schedule: Any, stages: list[Any]) -> Callable[[torch.Tensor], float]:
    """A step of the schedule, which returns the loss that the rank of the last stage has seen."""
    first, last = (any(getattr(stage, which) for stage in stages) for which in ("is_first", "is_last"))

    def step(batch: torch.Tensor) -> float:
        batch = batch.to(DEVICE)
        losses: list[torch.Tensor] = []
        schedule.step(*[batch] * first, **{"target": batch, "losses": losses} if last else {})
        total = torch.stack(losses).mean() if last else torch.zeros((), device=DEVICE)
        dist.all_reduce(total)
        return total.item()

    return step


def net_of(stages: list[Any]) -> nn.Module:
    return nn.ModuleList([stage.submod for stage in stages])


def staged(kind: Any) -> tuple[Any, list[Any]]:
    """The schedule and the stages of this rank: one, or two, of which the second is as far from the end as the first
    from the beginning (V), or in the second of two rounds."""
    rank, size = dist.get_rank(), dist.get_world_size()
    count = size if kind in ONE_STAGE.values() else 2 * size
    own = [rank] if count == size else [rank, count - 1 - rank if kind in V_SHAPED else rank + size]
    layers, each = list(model()), LAYERS // count
    stages = [
        PipelineStage(nn.Sequential(*layers[i * each : (i + 1) * each]).to(DEVICE), i, count, torch.device(DEVICE))
        for i in own
    ]
    return kind(stages[0] if count == size else stages, PARTS, loss_fn=loss_of), stages


def traced(rank: int) -> tuple[Any, list[Any]]:
    """`pipeline()` cuts the model."""
    size = dist.get_world_size()
    cuts = {str(i * LAYERS // size): SplitPoint.BEGINNING for i in range(1, size)}
    parts = pipeline(model(), mb_args=(batches()[0].chunk(PARTS)[0],), split_spec=cuts)
    stage = parts.build_stage(rank, torch.device(DEVICE))
    return ScheduleGPipe(stage, PARTS, loss_fn=loss_of), [stage]


def losses(rank: int) -> dict[str, list[float]]:
    found = {}
    for name, kind in (ONE_STAGE | TWO_STAGES).items():
        schedule, stages = staged(kind)
        found[name] = train(net_of(stages), steps_of(schedule, stages))
    return found


def losses_of_a_traced_model(rank: int) -> list[float]:
    schedule, stages = traced(rank)
    return train(net_of(stages), steps_of(schedule, stages))


def memory(rank: int) -> dict[str, list[int]]:
    """Bytes that are allocated after 20 steps and after 200."""
    found = {}
    for kind in (Schedule1F1B, ScheduleInterleavedZeroBubble):
        schedule, stages = staged(kind)
        net, step, batch = net_of(stages), steps_of(schedule, stages), batches()[0]
        found[kind.__name__] = after = []
        for times in (20, 180):
            for _ in range(times):
                net.zero_grad()
                step(batch)
            gc.collect()
            torch.accelerator.synchronize()
            after.append(torch.accelerator.memory_allocated())
    return found


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.full)])
def results_of_ranks(request, tmp_path_factory):
    functions = [losses] if request.param == 2 else [losses, losses_of_a_traced_model, memory]
    return run_ranks(run_in_turn, request.param, tmp_path_factory.mktemp("ranks"), *functions)


@pytest.mark.parametrize("schedule", [*ONE_STAGE, *TWO_STAGES])
def test_losses_are_those_of_one_process(results_of_ranks, schedule):
    check_losses(results["losses"][schedule] for results in results_of_ranks)


def check_losses(losses_of_ranks):
    expected = one_process()
    assert expected[-1] < expected[0] / 1.2
    for losses_of_rank in losses_of_ranks:
        assert losses_of_rank == pytest.approx(expected, rel=1e-5)


def on_four_ranks(test):
    return pytest.mark.full(pytest.mark.parametrize("results_of_ranks", [4], indirect=True)(test))


@on_four_ranks
def test_losses_of_a_model_that_was_cut_by_tracing_are_those_of_one_process(results_of_ranks):
    check_losses(results["losses_of_a_traced_model"] for results in results_of_ranks)


@on_four_ranks
def test_two_hundred_steps_lose_no_memory(results_of_ranks):
    for results in results_of_ranks:
        for early, late in results["memory"].values():
            assert late == early
