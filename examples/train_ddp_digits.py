"""Trains the network of train_digits.py with several processes, each with a part of every batch.

    torchrun --nproc-per-node=4 examples/train_ddp_digits.py

DistributedDataParallel averages the gradients of all processes (ranks) while they are computed, and the normalisations
use the statistics of the whole batch, so the result does not depend on the number of ranks. The device is PyTorch's
current accelerator. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tqdm import tqdm
from train_digits import BATCH_SIZE, load_data, make_model


def choose_device() -> torch.device:
    """Makes this rank's device current and returns it. Ranks may share a device, which NCCL rejects."""
    index = int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(index)
    return torch.device(torch.accelerator.current_accelerator().type, index)


def train(model: nn.Module, data: TensorDataset, epochs: int, seed: int, device: torch.device) -> list[float]:
    """Trains `model` in place and returns the loss of each step, averaged over all ranks."""
    sampler = DistributedSampler(data, seed=seed)
    loader = DataLoader(data, BATCH_SIZE // dist.get_world_size(), sampler=sampler, drop_last=True, pin_memory=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    losses = []
    with tqdm(total=epochs * len(loader), desc=str(device), disable=dist.get_rank() != 0) as progress:
        for epoch in range(epochs):
            sampler.set_epoch(epoch)  # a different order in each epoch
            for images, labels in loader:
                images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
                loss = functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())  # read after the last step: reading waits for the device
                progress.update()
    mean = torch.stack(losses)
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    return mean.tolist()


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, device: torch.device) -> float:
    """The fraction of the images that `model` labels correctly; each rank evaluates a part of them."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model.eval()
    guesses = model(images[rank::ranks].to(device)).argmax(dim=1)
    right = (guesses == labels[rank::ranks].to(device)).sum()
    dist.all_reduce(right)
    return right.item() / len(labels)


@record  # so that torchrun shows the traceback of the rank that failed first
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the batches (default: %(default)s)")
    parser.add_argument("--loss-log", type=Path, help="file for the loss of each step, one per line")
    options = parser.parse_args()

    device = choose_device()
    dist.init_process_group()
    train_images, train_labels, test_images, test_labels = load_data(options.seed)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(make_model(options.seed)).to(device)
    model = DistributedDataParallel(model)

    start = time.perf_counter()
    losses = train(model, TensorDataset(train_images, train_labels), options.epochs, options.seed, device)
    seconds = time.perf_counter() - start
    result = {
        "accuracy": round(accuracy(model, test_images, test_labels, device), 4),
        "seconds": round(seconds, 3),
        "ranks": dist.get_world_size(),
        "device": device.type,
    }
    if dist.get_rank() == 0:
        if options.loss_log:
            options.loss_log.write_text("".join(f"{loss!r}\n" for loss in losses))
        print(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
