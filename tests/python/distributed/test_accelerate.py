"""Hugging Face's accelerate trains on the device as docs/trainers.md says, and as one process does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from devices import DEVICE
from torch.utils.data import DataLoader, TensorDataset
from trainers import (
    BATCH,
    data,
    documented,
    documented_names,
    forget_accelerator,
    model,
    needs,
    ranks,
    run_program,
    run_trainers,
)

pytestmark = needs("accelerate")


def train(checkpoint: str, **how: Any) -> dict[str, Any]:
    """Losses of two epochs, of the second again from a checkpoint, and seven rows that all ranks gather."""
    from accelerate import Accelerator

    if ranks() > 1:
        documented_names("accelerate")["use_openreg"]()
    accelerator = Accelerator(gradient_accumulation_steps=2, **how)
    net, loader = model(), DataLoader(data(), batch_size=BATCH // ranks())
    rows = DataLoader(TensorDataset(data().tensors[0][:7]), batch_size=2)
    net, optimizer, loader, rows = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-2), loader, rows)

    def epoch() -> list[float]:
        losses = []
        for inputs, targets in loader:
            with accelerator.accumulate(net):
                loss = (net(inputs) - targets).square().mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
        return losses

    first = epoch()
    accelerator.save_state(checkpoint)
    accelerator.wait_for_everyone()
    second = epoch()
    accelerator.load_state(checkpoint)
    result = {
        "class": type(net).__name__,
        "device": accelerator.device.type,
        "losses": first + second,
        "resumed": first + epoch(),
        "gathered": torch.cat([accelerator.gather_for_metrics(part) for (part,) in rows]).tolist(),
    }
    forget_accelerator()
    return result


def alone(rank: int) -> dict[str, Any]:
    return train("alone")


def ddp(rank: int) -> dict[str, Any]:
    return train("ddp")


def ddp_in_bfloat16(rank: int) -> dict[str, Any]:
    return train("ddp_in_bfloat16", mixed_precision="bf16")


def fsdp(rank: int, checkpoint: str = "fsdp", **how: Any) -> dict[str, Any]:
    from accelerate import FullyShardedDataParallelPlugin

    wrap = {"auto_wrap_policy": "size_based_wrap", "min_num_params": 100}
    return train(checkpoint, fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, **wrap, **how))


def fsdp_offloads(rank: int) -> dict[str, Any]:
    return fsdp(rank, "fsdp_offloads", cpu_offload=True, state_dict_type="FULL_STATE_DICT")


WAYS = {
    ddp: ("DistributedDataParallel", 1e-4),
    ddp_in_bfloat16: ("DistributedDataParallel", 3e-2),
    fsdp: ("FSDPSequential", 1e-4),
    fsdp_offloads: ("FSDPSequential", 1e-4),
}


@pytest.fixture(scope="module")
def of_one(tmp_path_factory):
    return run_trainers(1, tmp_path_factory.mktemp("one"), alone, ACCELERATE_TORCH_DEVICE=DEVICE)[0]["alone"]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    return run_trainers(2, tmp_path_factory.mktemp("two"), *WAYS)


@pytest.mark.parametrize("way, wrapped, tolerance", [(way, *expected) for way, expected in WAYS.items()])
def test_two_processes_train_as_one(of_one, of_two, way, wrapped, tolerance):
    assert of_one["device"] == DEVICE
    assert sum(of_one["losses"][6:]) < 0.95 * sum(of_one["losses"][:6])
    for result in (each[way.__name__] for each in of_two):
        assert (result["class"], result["device"]) == (wrapped, DEVICE)
        assert result["losses"] == pytest.approx(of_one["losses"], rel=tolerance)


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_resumes(of_two, way):
    for result in (each[way.__name__] for each in of_two):
        assert result["resumed"] == pytest.approx(result["losses"], rel=1e-6)


def test_gathered_metrics_have_each_row_once(of_two):
    for result in (each["ddp"] for each in of_two):
        assert result["gathered"] == data().tensors[0][:7].tolist()


def test_the_batch_size_is_reduced_until_it_fits(run_python):
    result = run_python(
        "import torch\n"
        "from accelerate.utils import find_executable_batch_size\n"
        "@find_executable_batch_size(starting_batch_size=64)\n"
        "def run(batch): return torch.empty(batch, 2**20, dtype=torch.uint8, device='openreg').shape[0]\n"
        "print(run())",
        TORCH_OPENREG_MEMORY="40MiB",
    )
    assert 20 < int(result.stdout) <= 40


LAUNCH = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0")


@pytest.mark.any_device
@pytest.mark.parametrize("launcher", [LAUNCH, ()], ids=["two processes", "one process"])
def test_the_documented_program_learns(launcher, tmp_path):
    report = run_program(tmp_path, documented("accelerate"), *launcher).splitlines()
    losses = [float(line.split()[1]) for line in report]
    assert len(losses) == 8
    assert losses[-1] < losses[0] / 2
    assert (tmp_path / "checkpoint/model.safetensors").exists()
