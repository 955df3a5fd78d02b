"""Lightning trains on the device as docs/trainers.md says, and as one process does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from devices import DEVICE
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from trainers import BATCH, data, documented, model, needs, ranks, run_program, run_trainers

pytestmark = [
    pytest.mark.any_device,
    *needs("lightning"),
    *needs("lightning_openreg", "pip install packages/lightning-openreg"),
]


def module(shard: bool = False) -> Any:
    """A LightningModule that keeps the losses of its steps; with `shard`, by FSDP2."""
    from lightning.pytorch import LightningModule

    class Regression(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.losses, self.seen = model(), [], set()

        def configure_model(self) -> None:
            if shard:
                for layer in (self.net[0], self.net[2], self.net):
                    fully_shard(layer, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch: Any) -> torch.Tensor:
            inputs, targets = batch
            loss = (self.net(inputs) - targets).square().mean()
            self.log("loss", loss, sync_dist=True)
            self.seen.add((inputs.device.type, type(self.trainer.strategy.model).__name__, type(self.net).__name__))
            return loss

        def on_train_batch_end(self, *_: Any) -> None:
            self.losses.append(self.trainer.callback_metrics["loss"].item())

        def validation_step(self, batch: Any) -> None:
            inputs, targets = batch
            self.log("validated", (self.net(inputs) - targets).square().mean(), sync_dist=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    return Regression()


def train(checkpoint: str, strategy: Callable[[], Any], shard: bool = False, **how: Any) -> dict[str, Any]:
    """Losses of two epochs, and of a third from a checkpoint in another module."""
    from lightning.pytorch import Trainer

    how = {
        "accelerator": DEVICE,
        "devices": ranks(),
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
        "default_root_dir": checkpoint,
        **how,
    }
    rank = dist.get_rank() if dist.is_initialized() else 0
    sampler = DistributedSampler(data(), ranks(), rank, shuffle=False)
    loader = DataLoader(data(), batch_size=BATCH // ranks(), sampler=sampler)

    def fit(epochs: int, **resume: Any) -> tuple[Any, Any]:
        trainer, net = Trainer(strategy=strategy(), max_epochs=epochs, **how), module(shard)
        trainer.fit(net, loader, loader, **resume)
        return trainer, net

    trainer, first = fit(2)
    trainer.save_checkpoint(f"{checkpoint}.ckpt")
    _, whole = fit(3)
    _, resumed = fit(3, ckpt_path=f"{checkpoint}.ckpt")
    return {
        "losses": whole.losses,
        "resumed": first.losses + resumed.losses,
        "validated": trainer.callback_metrics["validated"].item(),
        "seen": first.seen,
    }


def alone(rank: int) -> dict[str, Any]:
    return train("alone", lambda: "auto")


def ddp(rank: int) -> dict[str, Any]:
    return train("ddp", lambda: "auto")


def ddp_in_bfloat16(rank: int) -> dict[str, Any]:
    return train("ddp_in_bfloat16", lambda: "ddp", precision="bf16-mixed")


def fsdp1(rank: int, checkpoint: str = "fsdp1", **how: Any) -> dict[str, Any]:
    from lightning.pytorch.strategies import FSDPStrategy

    return train(checkpoint, lambda: FSDPStrategy(auto_wrap_policy={nn.Linear}), **how)


def fsdp1_in_bfloat16(rank: int) -> dict[str, Any]:
    return fsdp1(rank, "fsdp1_in_bfloat16", precision="bf16-mixed")


def fsdp2(rank: int) -> dict[str, Any]:
    from lightning.pytorch.strategies import ModelParallelStrategy

    return train("fsdp2", lambda: ModelParallelStrategy(ranks(), tensor_parallel_size=1), shard=True)


WAYS = {
    ddp: ("DistributedDataParallel", "Sequential", 1e-4),
    ddp_in_bfloat16: ("DistributedDataParallel", "Sequential", 3e-2),
    fsdp1: ("FullyShardedDataParallel", "Sequential", 1e-4),
    fsdp1_in_bfloat16: ("FullyShardedDataParallel", "Sequential", 3e-2),
    fsdp2: ("Regression", "FSDPSequential", 1e-4),
}


@pytest.fixture(scope="module")
def of_one(tmp_path_factory):
    return run_trainers(1, tmp_path_factory.mktemp("one"), alone)[0]


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    return run_trainers(2, tmp_path_factory.mktemp("two"), *WAYS)


@pytest.mark.parametrize("way, wrapped, net, tolerance", [(way, *expected) for way, expected in WAYS.items()])
def test_two_processes_train_as_one(of_one, of_two, way, wrapped, net, tolerance):
    expected = of_one["alone"]
    assert expected["seen"] == {(DEVICE, "Regression", "Sequential")}
    assert sum(expected["losses"][-6:]) < 0.75 * sum(expected["losses"][:6])
    for result in (each[way.__name__] for each in of_two):
        assert result["seen"] == {(DEVICE, wrapped, net)}
        assert result["losses"] == pytest.approx(expected["losses"], rel=tolerance)
        assert result["validated"] == pytest.approx(expected["validated"], rel=tolerance)


@pytest.mark.parametrize("way", WAYS)
def test_a_checkpoint_resumes(of_two, way):
    for result in (each[way.__name__] for each in of_two):
        assert result["resumed"] == pytest.approx(result["losses"], rel=1e-6)


def test_the_documented_program_learns(tmp_path):
    last = run_program(tmp_path, documented("Lightning")).split()[-1]
    assert float(last) < 1
