"""Models that are split over ranks compute what one process does: DTensors, tensor and context parallelism, experts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from ranks import run_in_turn, run_ranks
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, randn as distributed_randn
from torch.distributed.tensor._random import manual_seed as seed_dtensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F
from transformer import BLOCKS, loss_of, train, transformer, whole_step

PLACEMENTS = {"whole": Replicate(), "rows": Shard(0), "columns": Shard(1), "addends": Partial()}


def mesh() -> DeviceMesh:
    return dist.init_device_mesh(DEVICE, (dist.get_world_size(),))


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).float()


def placed(tensor: torch.Tensor, placement: Any) -> DTensor:
    if placement != Partial():
        return distribute_tensor(tensor.to(DEVICE), mesh(), [placement])
    share = tensor.to(DEVICE) if dist.get_rank() == 0 else torch.zeros_like(tensor, device=DEVICE)
    return DTensor.from_local(share, mesh(), [placement])


# What the ranks do.


def redistribute(rank: int) -> dict[tuple[str, str], list[list[float]]]:
    """Of a size that no number of ranks divides."""
    found = {}
    for (name, before), (other, after) in itertools.product(PLACEMENTS.items(), repeat=2):
        if after.is_partial():
            continue  # for internal use only, says PyTorch
        tensor = placed(numbers(7, 5), before).redistribute(placements=[after])
        assert tensor.placements == (after,)
        found[name, other] = tensor.full_tensor().tolist()
    return found


def matmul(rank: int) -> dict[tuple[str, str], Any]:
    """The product, and the gradients, of matrices in all placements."""
    found = {}
    for (name, left), (other, right) in itertools.product(PLACEMENTS.items(), repeat=2):
        a = placed(numbers(6, 10), left).requires_grad_()
        b = placed(numbers(10, 8, seed=1), right).requires_grad_()
        product = a @ b
        product.redistribute(placements=[Replicate()]).square().sum().backward()
        found[name, other] = [each.full_tensor().tolist() for each in (product, a.grad, b.grad)]
    return found


def random_numbers(rank: int) -> dict[str, Any]:
    torch.manual_seed(7)
    sharded = distributed_randn(8, 6, device_mesh=mesh(), placements=[Shard(0)])
    whole = distributed_randn(8, 6, device_mesh=mesh(), placements=[Replicate()])
    dropped = F.dropout(placed(torch.ones(64, 8), Shard(0)), 0.5)
    offset = torch.openreg.default_generators[torch.accelerator.current_device_index()].get_offset()
    seed_dtensor(7, mesh())
    again = distributed_randn(8, 6, device_mesh=mesh(), placements=[Shard(0)])
    tensors = {"sharded": sharded, "whole": whole, "dropped": dropped, "again": again}
    return {"offset": offset, **{name: tensor.to_local().tolist() for name, tensor in tensors.items()}}


def attention_inputs() -> list[torch.Tensor]:
    return [numbers(4, 4, 6, 8, seed=i) / 4 for i in range(3)]


def attention_mask() -> torch.Tensor:
    return numbers(4, 1, 6, 6, seed=3)


def attention_of_heads(rank: int) -> Any:
    found = []
    for placement, of_mask in ((Shard(0), None), (Shard(1), None), (Shard(1), Replicate()), (Shard(0), Shard(0))):
        q, k, v = (placed(each, placement).requires_grad_() for each in attention_inputs())
        mask = None if of_mask is None else placed(attention_mask(), of_mask)
        result = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        assert result.placements == (placement,)
        result.square().sum().backward()
        found.append([each.full_tensor().tolist() for each in (result, q.grad, k.grad, v.grad)])
    return found


def refused(rank: int) -> list[str]:
    """What attention says to masks that it cannot take."""
    q, mask = placed(attention_inputs()[0], Shard(0)), placed(attention_mask(), Shard(2))
    said = []
    with pytest.raises(NotImplementedError) as error:
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    said.append(str(error.value))
    x, mask = torch.zeros(1, 1, 16, 8, device=DEVICE), torch.zeros(1, 1, 16 // dist.get_world_size(), 16, device=DEVICE)
    with (
        context_parallel(mesh(), buffers=[x], buffer_seq_dims=[2]),
        pytest.raises(NotImplementedError) as error,
    ):
        F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
    said.append(str(error.value))
    return said


BLOCK_PLAN = {
    "norm1": SequenceParallel(),
    "attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
    "attention.q": ColwiseParallel(),
    "attention.k": ColwiseParallel(),
    "attention.v": ColwiseParallel(),
    "attention.o": RowwiseParallel(output_layouts=Shard(1)),
    "norm2": SequenceParallel(),
    "feed_forward": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
    "feed_forward.up": ColwiseParallel(),
    "feed_forward.down": RowwiseParallel(output_layouts=Shard(1)),
}


def split_transformer(mesh: DeviceMesh) -> Any:
    """Between layers each rank has a part of the sequence, and the scores of a part of the words."""
    net = transformer().to(DEVICE)
    plan = {f"blocks.{i}.{name}": how for i in range(BLOCKS) for name, how in BLOCK_PLAN.items()}
    plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    plan["norm"] = SequenceParallel()
    plan["head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False)
    return parallelize_module(net, mesh, plan)


def step_of_loss_parallel(net: Any, text: torch.Tensor) -> torch.Tensor:
    text = text.to(DEVICE)
    with loss_parallel():
        loss = loss_of(net(text[:, :-1]), text[:, 1:])
        loss.backward()
    return loss


def tensor_parallel(rank: int) -> list[float]:
    gather = PrepareModuleOutput(output_layouts=Shard(-1), desired_output_layouts=Replicate())
    net = parallelize_module(split_transformer(mesh()), mesh(), gather)
    return train(net, lambda net, text: whole_step(net, text.to(DEVICE)))


def loss_parallel_too(rank: int) -> list[float]:
    return train(split_transformer(mesh()), step_of_loss_parallel)


def fully_sharded_too(rank: int) -> list[float]:
    """Two ranks share the layers, and two such pairs have half of the texts each and a part of the parameters."""
    both = dist.init_device_mesh(DEVICE, (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "tensor"))
    net = split_transformer(both["tensor"])
    for block in net.blocks:
        fully_shard(block, mesh=both["data"])
    fully_shard(net, mesh=both["data"])

    def step(net: Any, text: torch.Tensor) -> torch.Tensor:
        loss = step_of_loss_parallel(net, text.chunk(both["data"].size())[both["data"].get_local_rank()]).full_tensor()
        dist.all_reduce(loss, dist.ReduceOp.AVG, group=both["data"].get_group())
        return loss

    return train(net, step)


def context_parallel_by(method: str) -> list[float]:
    """Each rank has two parts of each text."""
    set_rotate_method(method)

    def step(net: Any, text: torch.Tensor) -> torch.Tensor:
        inputs, targets = text[:, :-1].to(DEVICE), text[:, 1:].to(DEVICE)
        with context_parallel(mesh(), buffers=[inputs, targets], buffer_seq_dims=[1, 1]):
            loss = loss_of(net(inputs), targets)
            loss.backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad, dist.ReduceOp.AVG)
        dist.all_reduce(loss.detach(), dist.ReduceOp.AVG)
        return loss

    return train(transformer().to(DEVICE), step)


def context_parallel_by_all_gather(rank: int) -> list[float]:
    return context_parallel_by("allgather")


def context_parallel_by_all_to_all(rank: int) -> list[float]:
    return context_parallel_by("alltoall")


WAYS = [tensor_parallel, loss_parallel_too, context_parallel_by_all_gather, context_parallel_by_all_to_all]
EXPERTS, TOKENS = 8, 24


class Experts(nn.Module):
    """Each token goes to the expert that the gate likes best, wherever that is."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate = nn.Linear(8, EXPERTS)
        self.up = nn.Parameter(torch.randn(EXPERTS, 8, 16) / 4)
        self.down = nn.Parameter(torch.randn(EXPERTS, 16, 8) / 4)
        self.exchange: Any = None  # how tokens travel: (tokens, rows to receive, rows to send)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        likings, choice = self.gate(tokens).softmax(1).max(1)
        order = choice.argsort(stable=True)
        wanted = choice.bincount(minlength=EXPERTS)
        results = self.serve(tokens[order], wanted)
        return torch.zeros_like(tokens).index_copy(0, order, results) * likings[:, None]

    def serve(self, tokens: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        if not self.exchange:
            return self.compute(tokens, wanted)
        size, here = dist.get_world_size(), len(self.up)
        served = torch.empty_like(wanted)
        dist.all_to_all_single(served, wanted)
        send, receive = (counts.view(size, here).sum(1).tolist() for counts in (wanted, served))
        tokens = self.exchange(tokens, receive, send)
        experts = torch.arange(here, device=tokens.device).repeat(size).repeat_interleave(served)
        order = experts.argsort(stable=True)
        results = self.compute(tokens[order], served.view(size, here).sum(0))
        return self.exchange(torch.zeros_like(results).index_copy(0, order, results), send, receive)

    def compute(self, tokens: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        parts = tokens.split(counts.tolist())
        return torch.cat([(part @ up).relu() @ down for part, up, down in zip(parts, self.up, self.down, strict=True)])


def tokens() -> torch.Tensor:
    return torch.randn(TOKENS, 8, generator=torch.Generator().manual_seed(5))


def exchange(tokens: torch.Tensor, receive: list[int], send: list[int]) -> torch.Tensor:
    return all_to_all_single_autograd(tokens, receive, send, dist.group.WORLD)


def rank_experts() -> Experts:
    """With the experts of this rank alone."""
    net = Experts()
    for name in ("up", "down"):
        setattr(net, name, nn.Parameter(getattr(net, name).detach().chunk(dist.get_world_size())[dist.get_rank()]))
    net.exchange = exchange
    return net.to(DEVICE)


def experts(rank: int) -> Any:
    """The loss, and the gradients of all experts and of the gate."""
    net = rank_experts()
    loss = net(tokens().chunk(dist.get_world_size())[rank].to(DEVICE)).square().sum()
    loss.backward()
    gradients = [torch.empty(EXPERTS, *each.shape[1:], device=DEVICE) for each in (net.up, net.down)]
    for all_of_them, parameter in zip(gradients, (net.up, net.down), strict=True):
        dist.all_gather_single(all_of_them, parameter.grad)
    for each in (loss.detach(), net.gate.weight.grad):
        dist.all_reduce(each)
    return [each.tolist() for each in (loss, *gradients, net.gate.weight.grad)]


def memory(rank: int) -> dict[str, list[int]]:
    """Bytes that are allocated after 20 steps and after 200, of what the ways to split a model are made of."""
    layers = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)).to(DEVICE)
    parallelize_module(layers, mesh(), {"0": ColwiseParallel(), "1": RowwiseParallel()})
    net = rank_experts()

    def attend() -> None:
        x = torch.ones(1, 2, 8, 8, device=DEVICE)
        with context_parallel(mesh(), buffers=[x], buffer_seq_dims=[2], no_restore_buffers={x}):
            x.requires_grad_()
            F.scaled_dot_product_attention(x, x, x, is_causal=True).sum().backward()

    steps = {
        "tensor": lambda: layers(torch.ones(4, 8, device=DEVICE)).sum().backward(),
        "context": attend,
        "experts": lambda: net(tokens().to(DEVICE)).sum().backward(),
    }
    return {name: allocated_by(step) for name, step in steps.items()}


def allocated_by(step: Callable[[], Any]) -> list[int]:
    after = []
    for times in (20, 180):
        for _ in range(times):
            step()
        torch.accelerator.synchronize()
        after.append(torch.accelerator.memory_allocated())
    return after


# What the tests expect of them.


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.full)])
def results_of_ranks(request, tmp_path_factory):
    functions = [redistribute, matmul, random_numbers, attention_of_heads, refused, experts, *WAYS]
    if request.param == 4:
        functions += [fully_sharded_too, memory]
    return run_ranks(run_in_turn, request.param, tmp_path_factory.mktemp("ranks"), *functions)


def test_redistribution_keeps_the_numbers(results_of_ranks):
    for results in results_of_ranks:
        for found in results["redistribute"].values():
            assert found == numbers(7, 5).tolist()


def test_products_and_their_gradients_are_those_of_whole_matrices(results_of_ranks):
    a, b = numbers(6, 10).requires_grad_(), numbers(10, 8, seed=1).requires_grad_()
    product = a @ b
    product.square().sum().backward()
    expected = [each.tolist() for each in (product, a.grad, b.grad)]
    for results in results_of_ranks:
        assert len(results["matmul"]) == len(PLACEMENTS) ** 2
        for found in results["matmul"].values():
            assert found == expected


def test_random_numbers_are_parts_of_one_sequence(results_of_ranks):
    """The generator's offset says which part: those of a shard begin behind those of the shards before it."""
    generator = torch.Generator(DEVICE).manual_seed(7)
    rows = 8 // len(results_of_ranks)
    for rank, results in enumerate(results_of_ranks):
        found = results["random_numbers"]
        generator.set_offset(rank * rows * 6)
        assert found["sharded"] == torch.randn(rows, 6, generator=generator, device=DEVICE).tolist()
        assert found["again"] == found["sharded"]
        generator.set_offset(8 * 6)
        assert found["whole"] == torch.randn(8, 6, generator=generator, device=DEVICE).tolist()
        assert found["offset"] == 8 * 6 + 8 * 6 + 64 * 8


def test_each_shard_is_dropped_by_numbers_of_its_own(results_of_ranks):
    dropped = [results["random_numbers"]["dropped"] for results in results_of_ranks]
    for one, other in itertools.combinations(dropped, 2):
        assert one != other


def test_attention_on_batches_and_heads_is_that_of_one_process(results_of_ranks):
    for results in results_of_ranks:
        for found, masked in zip(results["attention_of_heads"], (False, False, True, True), strict=True):
            q, k, v = (each.requires_grad_() for each in attention_inputs())
            result = F.scaled_dot_product_attention(q, k, v, attn_mask=attention_mask() if masked else None)
            result.square().sum().backward()
            for one, other in zip(found, (result, q.grad, k.grad, v.grad), strict=True):
                torch.testing.assert_close(torch.tensor(one), other.detach())


def test_attention_refuses_masks_that_are_split_along_the_sequence(results_of_ranks):
    for results in results_of_ranks:
        for text in results["refused"]:
            assert text.startswith("openreg: ")
            assert "attn_mask" in text


def test_experts_on_other_ranks_learn_as_in_one_process(results_of_ranks):
    net = Experts()
    loss = net(tokens()).square().sum()
    loss.backward()
    for results in results_of_ranks:
        for one, other in zip(
            results["experts"], (loss, net.up.grad, net.down.grad, net.gate.weight.grad), strict=True
        ):
            torch.testing.assert_close(torch.tensor(one), other.detach())


@pytest.mark.parametrize("way", WAYS)
def test_losses_of_a_split_transformer_are_those_of_one_process(results_of_ranks, way):
    check_losses(results_of_ranks, way)


def check_losses(results_of_ranks, way):
    expected = train(transformer(), whole_step)
    assert expected[-1] < expected[0] / 1.5
    for results in results_of_ranks:
        assert results[way.__name__] == pytest.approx(expected, rel=1e-5)


def on_four_ranks(test):
    return pytest.mark.full(pytest.mark.parametrize("results_of_ranks", [4], indirect=True)(test))


@on_four_ranks
def test_losses_of_a_transformer_split_both_ways_are_those_of_one_process(results_of_ranks):
    check_losses(results_of_ranks, fully_sharded_too)


@on_four_ranks
def test_two_hundred_steps_of_split_models_lose_no_memory(results_of_ranks):
    for results in results_of_ranks:
        for early, late in results["memory"].values():
            assert late == early
