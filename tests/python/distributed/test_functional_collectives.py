"""Collectives that are functions of tensors, with gradients and without; and what symmetric memory says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from devices import DEVICE
from torch.distributed import _symmetric_memory as symmetric


def tensor_of(rank: int, *shape: int) -> torch.Tensor:
    """On the CPU: numbers that tell the rank."""
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape) + 100 * (rank + 1)


def lists(results: Any) -> Any:
    return [each.tolist() for each in results] if isinstance(results, (list, tuple)) else results.tolist()


def on_both(rank: int, call: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Any, Any]:
    """The results of tensors of the device, and of Gloo with the same ones on the CPU."""
    tensors = [tensor_of(rank, *shape) for shape in shapes]
    return lists(call(*(each.to(DEVICE) for each in tensors))), lists(call(*tensors))


def results(rank: int) -> dict[str, tuple[Any, Any]]:
    group, size = dist.group.WORLD, dist.get_world_size()
    uneven = [r + 1 for r in range(size)], [rank + 1] * size
    calls = {
        "all_reduce": (lambda x: functional.all_reduce(x, "sum", group), (2, 3)),
        "all_reduce, list of ranks": (lambda x: functional.all_reduce(x, "max", list(range(size))), (2, 3)),
        "all_gather": (lambda x: functional.all_gather_tensor(x, 0, group), (2, 3)),
        "all_gather, other dimension": (lambda x: functional.all_gather_tensor(x, 1, group), (2, 3)),
        "reduce_scatter": (lambda x: functional.reduce_scatter_tensor(x, "sum", 0, group), (size, 3)),
        "reduce_scatter, other dimension": (
            lambda x: functional.reduce_scatter_tensor(x, "sum", 1, group),
            (3, 2 * size),
        ),
        "all_to_all": (lambda x: functional.all_to_all_single(x, None, None, group), (2 * size, 2)),
        "all_to_all, uneven": (
            lambda x: functional.all_to_all_single(x, *uneven, group),
            (size * (rank + 1), 2),
        ),
        "broadcast": (lambda x: functional.broadcast(x, 1, group), (3,)),
        "permute": (lambda x: functional.permute_tensor(x, [(r + 1) % size for r in range(size)], group), (3,)),
        "all_reduce_coalesced": (lambda *x: functional.all_reduce_coalesced(list(x), "sum", group), (1,), (2, 2)),
        "all_gather_coalesced": (
            lambda *x: functional.all_gather_into_tensor_coalesced(list(x), group),
            (1,),
            (2, 2),
        ),
        "reduce_scatter_coalesced": (
            lambda *x: functional.reduce_scatter_tensor_coalesced(list(x), "sum", [0, 0], group),
            (size,),
            (2 * size, 2),
        ),
        "wait_tensor": (lambda x: functional.wait_tensor(functional.all_reduce(x, "sum", group)), (2,)),
    }
    return {name: on_both(rank, *call) for name, call in calls.items()}


def gradients(rank: int) -> dict[str, tuple[Any, Any]]:
    """Of a sum that weighs each element, and each rank, differently. With Gloo where it can."""
    group, size = dist.group.WORLD, dist.get_world_size()

    def zeros(x: torch.Tensor, rows: int) -> torch.Tensor:
        return torch.zeros(rows, 2, device=x.device)

    calls = {
        "all_gather_tensor": lambda x: functional.all_gather_tensor_autograd(x, 0, group),
        "reduce_scatter_tensor": lambda x: functional.reduce_scatter_tensor_autograd(x, "sum", 0, group),
        "all_to_all_single": lambda x: functional.all_to_all_single_autograd(x, None, None, group),
        "nn.all_reduce": lambda x: differentiable.all_reduce(x),
        "nn.all_gather": lambda x: torch.cat(differentiable.all_gather(x)),
        "nn.reduce_scatter": lambda x: differentiable.reduce_scatter(zeros(x, 2), list(x.chunk(size))),
        "nn.all_to_all": lambda x: torch.cat(
            differentiable.all_to_all([zeros(x, 2) for _ in range(size)], list(x.chunk(size)))
        ),
        "nn.broadcast": lambda x: differentiable.broadcast(x, 1),
        "nn.reduce": lambda x: differentiable.reduce(x, 0) * (rank == 0),
        "nn.gather": lambda x: torch.cat(differentiable.gather(x, 0)),
        "nn.scatter": lambda x: differentiable.scatter(list(x.chunk(size)), 0),
    }

    def gradient_of(call: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], list[torch.Tensor]]:
        def both(x: torch.Tensor) -> list[torch.Tensor]:
            x.requires_grad_()
            y = call(x)
            weights = torch.arange(float(y.numel()), device=x.device).view_as(y) + 1
            (y * weights * (rank + 1)).sum().backward()
            return [y.detach(), x.grad]

        return both

    return {name: on_both(rank, gradient_of(call), (2 * size, 2)) for name, call in calls.items()}


def gradient_of_gathered(rank: int) -> tuple[Any, Any]:
    """Of ``_all_gather_base``, which Gloo has without a gradient: what ``all_gather`` gives."""
    size = dist.get_world_size()
    found = []
    for gather in (
        lambda x: differentiable._all_gather_base(torch.empty(2 * size, 3, device=DEVICE), x),
        lambda x: torch.cat(differentiable.all_gather(x)),
    ):
        x = tensor_of(rank, 2, 3).to(DEVICE).requires_grad_()
        gather(x).pow(2).sum().backward()
        found.append(x.grad.tolist())
    return found[0], found[1]


def waits_late(rank: int) -> Any:
    """The result of a collective is waited for by what uses it, on the stream: views do not, kernels do."""
    total = functional.all_reduce(torch.ones(200_000, device=DEVICE), "sum", dist.group.WORLD)
    view = total.view(-1, 100)
    doubled = view * 2
    kinds = [type(each) is functional.AsyncCollectiveTensor for each in (total, view, doubled)]
    return kinds, doubled.sum().item(), total.trigger_wait().sum().item()


def refusals(rank: int) -> dict[str, str]:
    group = dist.group.WORLD
    ones = torch.ones(4, device=DEVICE)
    calls = {
        "empty": lambda: symmetric.empty(4, device=DEVICE),
        "empty, list": lambda: symmetric.empty([2, 2], dtype=torch.bfloat16, device=f"{DEVICE}:0"),
        "rendezvous": lambda: symmetric.rendezvous(ones, group),
        "rendezvous, name": lambda: symmetric.rendezvous(ones, group.group_name),
        "workspace": lambda: symmetric.get_symm_mem_workspace(group.group_name, 64),
        "pool": lambda: symmetric.get_mem_pool(torch.device(DEVICE)),
        "all_reduce": lambda: torch.ops.symm_mem.one_shot_all_reduce(ones, "sum", group.group_name),
        "all_gather": lambda: torch.ops.symm_mem._low_contention_all_gather(ones, group.group_name),
    }
    messages = {}
    for name, call in calls.items():
        with pytest.raises(RuntimeError) as error:
            call()
        messages[name] = str(error.value)
    return messages


def what_there_is(rank: int) -> tuple[Any, ...]:
    return (
        symmetric.get_backend(DEVICE),
        symmetric.is_symm_mem_tensor(torch.ones(1, device=DEVICE)),
    )


IN_RANKS = (results, gradients, gradient_of_gathered, waits_late, refusals, what_there_is)


@pytest.mark.parametrize("kind", [results, gradients])
def test_results_are_those_of_gloo(of, kind):
    for found in of(kind):
        assert len(found) > 10
        for name, (got, expected) in found.items():
            assert got == expected, name


def test_gathered_tensors_have_a_gradient(of):
    for found, expected in of(gradient_of_gathered):
        assert found == expected


def test_results_are_waited_for_by_what_uses_them(of):
    found = of(waits_late)
    size = len(found)
    assert found == [([True, True, False], 400_000.0 * size, 200_000.0 * size)] * size


def test_symmetric_memory_is_refused_by_the_name_of_the_device(of):
    for messages in of(refusals):
        for message in messages.values():
            assert DEVICE in message


def test_queries_report_that_there_is_no_symmetric_memory(of):
    for found in of(what_there_is):
        assert found == (None, False)
