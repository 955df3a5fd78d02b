"""Trains a small transformer on Python's reference manual, with weights sharded among several processes (FSDP).

    torchrun --nproc-per-node=4 examples/train_fsdp.py
    torchrun --nproc-per-node=4 examples/train_fsdp.py --checkpoints /tmp/manual

With checkpoints, a restarted training resumes from the newest one and reaches the same loss. torchrun restarts it
automatically if a process (rank) died:

    TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --nproc-per-node=4 --max-restarts=3 \\
        examples/train_fsdp.py --checkpoints /tmp/manual

(The variable gives the new processes a store without the addresses of the old ones.) The same happens if one rank runs
out of memory or loses its device. On the device openreg both can be caused, here in the first two runs of three:

    TORCH_OPENREG_FAULTS="oom@allocation:20000,rank=1,restart=0; lost@collective:500,rank=0,restart=1" \\
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --nproc-per-node=4 --max-restarts=3 \\
        examples/train_fsdp.py --checkpoints /tmp/manual

The loss is then that of an undisturbed run with as many ranks, bit for bit: each rank computes with one thread, which
is torchrun's default. The text is that of Python's `help()`, so nothing is downloaded. The device is PyTorch's current
accelerator. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from tqdm import tqdm

BATCH_SIZE = 32  # of all ranks together
CONTEXT = 64  # characters that the model sees
VOCABULARY = 128  # ASCII
WIDTH, HEADS, LAYERS = 64, 4, 2


def load_text() -> tuple[torch.Tensor, torch.Tensor]:
    """Python's manual as character codes (int64, 0 to 127), for training and for testing, on the CPU."""
    manual = "\n".join(topics[name] for name in sorted(topics))
    text = torch.frombuffer(bytearray(manual.encode("ascii", "replace")), dtype=torch.uint8).long()
    train, test = text.split([len(text) * 9 // 10, len(text) - len(text) * 9 // 10])
    return train, test


class Transformer(nn.Module):
    """Predicts the next character: [batch, length] to [batch, length, VOCABULARY]."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        x = self.characters(text) + self.positions(torch.arange(length, device=text.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)


class Training(Stateful):
    """The content of a checkpoint: the model, its optimizer, and the number of completed steps."""

    def __init__(self, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)  # the same weights in all ranks; each keeps its shard
        self.model = Transformer().to(device)
        for layer in self.model.layers:
            fully_shard(layer)  # gathered when needed, while the preceding layer computes
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "step": self.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.step = state["step"]


def loss_of(model: nn.Module, text: torch.Tensor, number: int, device: torch.device) -> torch.Tensor:
    """The loss of this rank's part of a batch. A batch depends on its number only."""
    generator = torch.Generator().manual_seed(number)
    starts = torch.randint(len(text) - CONTEXT, (BATCH_SIZE, 1), generator=generator)
    batch = text[starts + torch.arange(CONTEXT + 1)]
    part = batch.tensor_split(dist.get_world_size())[dist.get_rank()].to(device)
    return functional.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())


def newest_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint: the metadata is written after all ranks have written their parts."""
    return max((metadata.parent for metadata in folder.glob("step-*/.metadata")), default=None)


def train(training: Training, text: torch.Tensor, options: argparse.Namespace, device: torch.device) -> None:
    """Trains to the last step, and writes a checkpoint every few steps.

    Any error ends the rank, torch.OutOfMemoryError too: if it skipped the step, the others would wait for it in their
    collectives. torchrun ends them, and all resume from the same checkpoint.
    """
    shown = tqdm(total=options.steps, initial=training.step, desc=str(device), disable=dist.get_rank() != 0)
    while training.step < options.steps:
        loss = loss_of(training.model, text, training.step, device)
        training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
        training.step += 1
        shown.update()
        if options.checkpoints and training.step % options.every == 0:
            dcp.save({"training": training}, checkpoint_id=options.checkpoints / f"step-{training.step:06}")
            shown.set_postfix(saved=training.step, loss=loss.item())
    shown.close()


@torch.no_grad()
def evaluate(model: nn.Module, text: torch.Tensor, device: torch.device) -> float:
    """The mean loss of some batches."""
    loss = torch.stack([loss_of(model, text, number, device) for number in range(8)]).mean()
    dist.all_reduce(loss, dist.ReduceOp.AVG)
    return loss.item()


@record  # so that torchrun shows the traceback of the rank that failed first
def main() -> None:
    try:
        run()
    except Exception:
        # The error is written to a file for torchrun, which ends all ranks as soon as one has failed, and does not
        # survive a file that is half written.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise


def run() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300, help="training steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: %(default)s)")
    parser.add_argument("--checkpoints", type=Path, help="folder to write checkpoints to and to resume from")
    parser.add_argument("--every", type=int, default=50, help="steps between checkpoints (default: %(default)s)")
    options = parser.parse_args()

    # If there are more ranks than devices, ranks share them (NCCL rejects that).
    device = torch.device(
        torch.accelerator.current_accelerator().type, int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    )
    torch.accelerator.set_device_index(device)
    dist.init_process_group()
    train_text, test_text = load_text()
    training = Training(device, options.seed)
    checkpoint = options.checkpoints and newest_checkpoint(options.checkpoints)
    if checkpoint:
        dcp.load({"training": training}, checkpoint_id=checkpoint)
    resumed_from = training.step

    start = time.perf_counter()
    train(training, train_text, options, device)
    seconds = time.perf_counter() - start
    result = {
        "loss": evaluate(training.model, test_text, device),
        "resumed_from": resumed_from,
        "seconds": round(seconds, 3),
        "ranks": dist.get_world_size(),
        "device": device.type,
    }
    if dist.get_rank() == 0:
        print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
