"""A training: `python train_on_openreg.py NAMESPACE '{"devices": 2}'` prints the results as JSON.

With several devices Lightning itself starts the other processes, which run this file too.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def gradients_times_zero(state, bucket):  # type: ignore[no-untyped-def]  # PyTorch evaluates annotations and rejects strings
    """A communication hook that makes all gradients zero."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer() * 0)
    return future


def run(namespace: str, how: dict[str, Any]) -> dict[str, Any]:
    lightning = importlib.import_module(namespace)
    strategies = importlib.import_module(f"{namespace}.strategies")

    class Regression(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
            self.losses: list[float] = []
            self.seen: set[str] = set()

        def training_step(self, batch: Any) -> torch.Tensor:
            inputs, targets = batch
            outputs = self.model(inputs)
            self.seen |= {str(inputs.device), str(self.device), str(outputs.dtype)}
            loss = torch.nn.functional.mse_loss(outputs.float(), targets)
            self.log("loss", loss, sync_dist=True)
            return loss

        def on_train_batch_end(self, *_: object) -> None:
            self.losses.append(self.trainer.callback_metrics["loss"].item())

        def validation_step(self, batch: Any) -> None:
            inputs, targets = batch
            self.log("validated", torch.nn.functional.mse_loss(self.model(inputs).float(), targets), sync_dist=True)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    torch.manual_seed(1)
    inputs = torch.randn(64, 8)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    several = how["devices"] not in (1, "1", [1])
    rank = int(os.environ.get("LOCAL_RANK", 0))
    sampler = DistributedSampler(data, 2, rank, shuffle=False) if several else None  # each step has the same rows
    loader = DataLoader(data, batch_size=8 if several else 16, sampler=sampler)
    if how.pop("hook", False):
        how["strategy"] = strategies.DDPStrategy(ddp_comm_hook=gradients_times_zero)
    if how.get("strategy") == "fsdp-object":
        how["strategy"] = strategies.FSDPStrategy(auto_wrap_policy={torch.nn.Linear})
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    how = {"accelerator": "openreg", "max_epochs": 6, "use_distributed_sampler": False, **quiet, **how}
    trainer = lightning.Trainer(**how)
    net = Regression()
    trainer.fit(net, loader)
    validated = trainer.validate(net, loader, verbose=False)[0]["validated"]
    return {
        "losses": net.losses,
        "validated": validated,
        "seen": sorted(net.seen),
        "strategy": type(trainer.strategy).__name__,
        "processes": trainer.world_size,
        "rank": trainer.global_rank,
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else None,
    }


if __name__ == "__main__":
    result = run(sys.argv[1], json.loads(sys.argv[2]))
    if result["rank"] == 0:
        print(json.dumps(result))
