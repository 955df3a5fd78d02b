"""Distributed checkpoints: training that is resumed from one goes on as if it had never stopped."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from devices import DEVICE
from ranks import run_ranks
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save, torch_save_to_dcp
from torch.distributed.checkpoint.staging import BlockingAsyncStager, DefaultStager
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

WIDTH, BATCH = 16, 8
BEFORE, AFTER = range(3), range(3, 6)  # the steps before a checkpoint and after it
FIRST = torch.device(DEVICE, 0)
FULL = {"full_state_dict": True}

Wrap = Callable[[nn.Sequential], nn.Module]


class Training:
    """A model and its optimizer, which differ by `seed` until a checkpoint is loaded."""

    def __init__(self, seed: int, wrap: Wrap, device: torch.device = FIRST) -> None:
        torch.manual_seed(seed)
        layers = nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, WIDTH), nn.LayerNorm(WIDTH)
        self.model = wrap(nn.Sequential(*layers).to(device))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.device = device

    def run(self, steps: range) -> list[float]:
        rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        losses = []
        for step in steps:
            batch = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
            x = batch.chunk(size)[rank].to(self.device)
            loss = (self.model(x) - x.roll(1, 1)).square().mean()
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            total = loss.detach().clone()
            if dist.is_initialized():
                dist.all_reduce(total, dist.ReduceOp.AVG)
            losses.append(total.item())
        return losses

    def state(self, **options: Any) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer, options=StateDictOptions(**options))
        return {"model": model, "optimizer": optimizer}

    def load(self, folder: Path, **options: Any) -> None:
        state = self.state(**options)
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(**options),
        )


def plain(model: nn.Sequential) -> nn.Module:
    return model


def sharded(model: nn.Sequential, **how: Any) -> nn.Module:
    for layer in (model[0], model[2]):
        fully_shard(layer, **how)
    return fully_shard(model, **how)


def sharded_on_the_host(model: nn.Sequential) -> nn.Module:
    return sharded(model, offload_policy=CPUOffloadPolicy())


def sharded_flat(model: nn.Sequential) -> nn.Module:
    return FullyShardedDataParallel(model, device_id=FIRST, use_orig_params=True)


def resumed(
    save: Callable[[Training], Callable[[], None] | None],
    load: Callable[[Training], None],
    wrap: Wrap = sharded,
) -> tuple[list[float], list[float]]:
    """The losses after `save`, and after `load` into a model of other weights. What `save` returns ends the saving."""
    training = Training(0, wrap)
    training.run(BEFORE)
    finish = save(training)
    undisturbed = training.run(AFTER)
    if finish:
        finish()
    again = Training(1, wrap)
    load(again)
    return undisturbed, again.run(AFTER)


# How a checkpoint is written and read. Each function gets a folder of its own that all ranks see.


def saved(folder: Path, wrap: Wrap = sharded) -> Any:
    def save(training: Training) -> None:
        dcp.save(training.state(), checkpoint_id=folder)

    return resumed(save, lambda training: training.load(folder), wrap)


def saved_of_ddp(folder: Path) -> Any:
    return saved(folder, DistributedDataParallel)


def saved_of_fsdp1(folder: Path) -> Any:
    return saved(folder, sharded_flat)


def saved_of_offloaded_parameters(folder: Path) -> Any:
    return saved(folder, sharded_on_the_host)


def saved_by_threads(folder: Path) -> Any:
    def save(training: Training) -> None:
        dcp.save(training.state(), storage_writer=dcp.FileSystemWriter(folder, thread_count=2))

    return resumed(save, lambda training: training.load(folder))


def saved_from_the_host(folder: Path) -> Any:
    def save(training: Training) -> None:
        state = training.state(cpu_offload=True)
        assert {value.device.type for value in state["model"].values()} == {"cpu"}
        dcp.save(state, checkpoint_id=folder)

    return resumed(save, lambda training: training.load(folder, cpu_offload=True))


def saved_meanwhile(folder: Path, **how: Any) -> Any:
    """The training goes on while the checkpoint is written, as soon as the state has been copied."""

    def save(training: Training) -> Callable[[], None]:
        response = dcp.async_save(training.state(), checkpoint_id=folder, **how)
        if isinstance(response, AsyncSaveResponse):
            response.staging_completion.result()
            return response.upload_completion.result
        return response.result

    return resumed(save, lambda training: training.load(folder), sharded)


def saved_meanwhile_from_shared_memory(folder: Path) -> Any:
    """All that the stager can: it also pins."""
    stager = DefaultStager()
    try:
        result = saved_meanwhile(folder, async_stager=stager)
        staged = list(stager._state_dict_stager._cached_storage_mapping.values())
        assert staged and all(
            storage.is_shared() and torch.tensor([], dtype=torch.uint8).set_(storage).is_pinned() for storage in staged
        )
        return result
    finally:
        stager.close()


def saved_meanwhile_from_pinned_memory(folder: Path) -> Any:
    stager = BlockingAsyncStager(cache_staged_state_dict=True)
    saved_meanwhile(folder / "first", async_stager=stager)
    weights = [value.to_local() for value in stager.state_dict_cache["model"].values()]
    assert all(weight.is_pinned() for weight in weights)
    result = saved_meanwhile(folder / "second", async_stager=stager)
    again = [value.to_local() for value in stager.state_dict_cache["model"].values()]
    assert [weight.data_ptr() for weight in again] == [weight.data_ptr() for weight in weights]
    return result


def kept_by_rank_0(folder: Path, **where: Any) -> Any:
    """The first rank gathers the whole state, writes it by `torch.save`, reads it, and sends it to the others."""
    file = folder.with_suffix(".pt")

    def save(training: Training) -> None:
        state = training.state(**FULL, **where)
        if dist.get_rank() == 0:
            torch.save(state, file)

    def load(training: Training) -> None:
        nothing: dict[str, Any] = {"model": {}, "optimizer": {}}
        state = torch.load(file, weights_only=True) if dist.get_rank() == 0 else nothing
        options = StateDictOptions(**FULL, broadcast_from_rank0=True)
        set_model_state_dict(training.model, state["model"], options=options)
        set_optimizer_state_dict(training.model, training.optimizer, state["optimizer"], options=options)

    return resumed(save, load)


def kept_by_rank_0_on_the_host(folder: Path) -> Any:
    return kept_by_rank_0(folder, cpu_offload=True)


def turned_into_a_file_and_back(folder: Path) -> Any:
    def save(training: Training) -> None:
        dcp.save(training.state(), checkpoint_id=folder / "written")
        if dist.get_rank() == 0:
            dcp_to_torch_save(folder / "written", folder / "file.pt")
            torch_save_to_dcp(folder / "file.pt", folder / "back")
        dist.barrier()

    return resumed(save, lambda training: training.load(folder / "back"))


# What else a checkpoint holds.


def hugging_face(folder: Path) -> Any:
    """The weights as they were and as they come back from safetensors, by one rank, by all, and put together."""
    model = Training(0, sharded).model
    whole = StateDictOptions(**FULL, cpu_offload=True)  # that only the first rank gets
    results = []
    for name, how in {
        "whole": {},
        "shards": {"save_distributed": True},
        "both": {"save_distributed": True, "enable_consolidation": True},
    }.items():
        state = model.state_dict() if how else get_model_state_dict(model, options=whole)
        dcp.save(state, storage_writer=dcp.HuggingFaceStorageWriter(str(folder / name), **how))
        loaded = Training(1, sharded).model.state_dict()
        dcp.load(loaded, storage_reader=dcp.HuggingFaceStorageReader(str(folder / name)))
        results.append({name: value.full_tensor().tolist() for name, value in loaded.items()})
    return {name: value.full_tensor().tolist() for name, value in model.state_dict().items()}, results


def other_placements(folder: Path) -> Any:
    """A tensor that is split by its rows, read as it is split otherwise, whole, and on the host."""
    size = dist.get_world_size()
    line = init_device_mesh(DEVICE, (size,))
    places = [(line, [Shard(1)]), (line, [Replicate()])]
    if size == 4:
        places += [(init_device_mesh(DEVICE, (2, 2)), each) for each in ([Shard(1), Shard(0)], [Replicate(), Shard(0)])]
    whole = torch.arange(7.0 * size, device=DEVICE).view(7, size)
    dcp.save({"x": distribute_tensor(whole, line, [Shard(0)])}, checkpoint_id=folder)
    found = []
    for mesh, placements in places:
        state = {"x": distribute_tensor(torch.zeros_like(whole), mesh, placements)}
        dcp.load(state, checkpoint_id=folder)
        found.append(state["x"].full_tensor())
    for device in (DEVICE, "cpu"):
        alone = {"x": torch.zeros_like(whole, device=device)}
        dcp.load(alone, checkpoint_id=folder)
        found.append(alone["x"])
    return [torch.equal(each.cpu(), whole.cpu()) for each in found]


def all_dtypes_and_shapes(folder: Path) -> Any:
    numbers = torch.arange(12, device=DEVICE)
    dtypes = (torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.uint8, torch.bool, torch.complex64)
    state = {str(dtype): numbers.float().to(dtype) for dtype in dtypes} | {
        "empty": torch.empty(0, 3, device=DEVICE),
        "scalar": torch.tensor(2.5, device=DEVICE),
        "view": numbers.view(3, 4).t()[1:],
    }
    dcp.save(state | {"step": 3}, checkpoint_id=folder)
    loaded = {name: torch.zeros_like(value) for name, value in state.items()} | {"step": 0}
    dcp.load(loaded, checkpoint_id=folder)
    wrong = [
        name
        for name, value in state.items()
        if loaded[name].device != value.device or not torch.equal(loaded[name].cpu(), value.cpu())
    ]
    return wrong, loaded["step"]


def memory(folder: Path) -> Any:
    """Bytes that tensors take after the second checkpoint and after the twelfth."""
    training = Training(0, sharded)
    found = []
    for number in range(12):
        training.run(range(1))
        state = training.state()
        dcp.async_save(state, checkpoint_id=folder / str(number)).result()
        dcp.load(state, checkpoint_id=folder / str(number))
        del state
        if number in (1, 11):
            gc.collect()
            torch.accelerator.synchronize()
            found.append(torch.accelerator.memory_allocated())
    return found


WAYS = (
    saved,
    saved_of_ddp,
    saved_of_fsdp1,
    saved_of_offloaded_parameters,
    saved_by_threads,
    saved_from_the_host,
    saved_meanwhile,
    saved_meanwhile_from_shared_memory,
    saved_meanwhile_from_pinned_memory,
    kept_by_rank_0,
    kept_by_rank_0_on_the_host,
    turned_into_a_file_and_back,
)


def in_turn(rank: int, folder: Path, *functions: Callable[[Path], Any]) -> dict[str, Any]:
    """What each function returns, by its name: one set of processes for many tests."""
    return {function.__name__: function(folder / function.__name__) for function in functions}


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.full)])
def size(request):
    return request.param


@pytest.fixture(scope="module")
def folder(size, tmp_path_factory):
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def of(size, folder):
    """What a function returns in each of the ranks."""
    functions = (*WAYS, hugging_face, other_placements, all_dtypes_and_shapes, memory)
    results = run_ranks(in_turn, size, folder, folder, *functions)
    return lambda function: [result[function.__name__] for result in results]


@pytest.fixture(scope="module")
def expected():
    """The losses of one process on the CPU that is never interrupted: those after the checkpoint."""
    training = Training(0, plain, torch.device("cpu"))
    training.run(BEFORE)
    return pytest.approx(training.run(AFTER), rel=1e-5)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_training_resumes_as_if_it_had_not_stopped(of, expected, way):
    for undisturbed, again in of(way):
        assert again == expected and undisturbed == expected
        # DDP adds in another order in its first step, before it has seen in which order gradients come.
        assert again == undisturbed or way is saved_of_ddp


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.usefixtures("of")
def test_one_process_without_a_group_resumes_from_the_checkpoint_of_many(folder, expected):
    training = Training(1, plain)
    training.load(folder / "saved")
    assert training.run(AFTER) == expected


def go_on(rank: int, folder: Path) -> list[float]:
    training = Training(1, sharded)
    training.load(folder)
    return training.run(AFTER)


@pytest.mark.any_device
@pytest.mark.full
@pytest.mark.usefixtures("of")
def test_half_of_the_ranks_resume_from_the_checkpoint_of_all(size, folder, tmp_path, expected):
    assert run_ranks(go_on, size // 2, tmp_path, folder / "saved") == [expected] * (size // 2)


def by_a_process(rank: int, folder: Path) -> Any:
    return saved_meanwhile(folder, async_checkpointer_type=AsyncCheckpointerType.PROCESS)


@pytest.mark.any_device
@pytest.mark.full
def test_a_process_of_its_own_writes_the_checkpoint(tmp_path, expected):
    for undisturbed, again in run_ranks(by_a_process, 2, tmp_path, tmp_path / "checkpoint"):
        assert again == undisturbed == expected


def without_a_group_of_the_cpu(rank: int, folder: Path) -> Any:
    return saved(folder)


@pytest.mark.any_device
@pytest.mark.full
def test_checkpoints_need_no_backend_for_the_cpu(tmp_path, expected):
    for undisturbed, again in run_ranks(
        without_a_group_of_the_cpu, 2, tmp_path, tmp_path / "checkpoint", backend="occl"
    ):
        assert again == undisturbed == expected


def test_safetensors_are_written_and_read_by_one_rank_and_by_all(of, folder):
    for weights, loaded in of(hugging_face):
        assert loaded == [weights] * 3
    shards = sorted(path.name for path in (folder / "hugging_face/shards").glob("*.safetensors"))
    assert len(shards) == len(of(hugging_face))
    assert (folder / "hugging_face/both/model-00001-of-00001.safetensors").is_file()


def test_tensors_are_read_as_they_are_split_now(of):
    for right in of(other_placements):
        assert len(right) >= 4 and all(right)


def test_all_dtypes_and_shapes_come_back(of):
    for wrong, step in of(all_dtypes_and_shapes):
        assert (wrong, step) == ([], 3)


def test_checkpoints_lose_no_memory(of):
    for early, late in of(memory):
        assert late == early
