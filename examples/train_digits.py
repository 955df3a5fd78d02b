"""Trains a small convolutional network on scikit-learn's handwritten digits, on `openreg` or on the CPU.

The script only imports torch, which loads the device. Initial weights and batches are the same on every device, so the
runs can be compared. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional
from tqdm import tqdm

BATCH_SIZE = 64
TEST_SHARE = 0.2


def load_data(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Images (float32, [N, 1, 8, 8], 0 to 1) and labels (int64, 0 to 9) for training and for testing, on the CPU."""
    digits = load_digits()
    images = torch.from_numpy((digits.images / 16.0).astype(np.float32)).unsqueeze(1)
    labels = torch.from_numpy(digits.target.astype(np.int64))
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    test, train = order.split([int(len(labels) * TEST_SHARE), len(labels) - int(len(labels) * TEST_SHARE)])
    return images[train], labels[train], images[test], labels[test]


def convolution(inputs: int, outputs: int) -> list[nn.Module]:
    """A 3x3 convolution, normalised. It has no bias: the normalisation removes the mean and adds its own bias."""
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def make_model(seed: int) -> nn.Module:
    """A convolutional network with weights drawn on the CPU, the same for the same seed: [N, 1, 8, 8] to [N, 10]."""
    torch.manual_seed(seed)
    return nn.Sequential(
        *convolution(1, 16),
        *convolution(16, 32),
        nn.MaxPool2d(2),  # 4x4
        *convolution(32, 64),
        nn.MaxPool2d(2),  # 2x2
        nn.Flatten(),
        nn.Linear(64 * 2 * 2, 10),
    )


def batches(count: int, epochs: int, seed: int) -> Iterator[torch.Tensor]:
    """Indices of the samples of each batch, shuffled on the CPU, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        yield from torch.randperm(count, generator=generator).split(BATCH_SIZE)


def train(
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    epochs: int,
    seed: int,
    progress: bool = True,
) -> list[float]:
    """Trains `model` in place, on its device, and returns the loss of each step."""
    device = next(model.parameters()).device
    images, labels = images.to(device), labels.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    steps = epochs * -(-len(labels) // BATCH_SIZE)
    losses = []
    for batch in tqdm(batches(len(labels), epochs, seed), total=steps, desc=str(device), disable=not progress):
        batch = batch.to(device)
        loss = functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())  # read after the last step: reading waits for the device
    return torch.stack(losses).tolist()


@torch.no_grad()
def accuracy(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """The fraction of the images that `model` labels correctly."""
    device = next(model.parameters()).device
    model.eval()
    right = model(images.to(device)).argmax(dim=1) == labels.to(device)
    return right.float().mean().item()


@torch.no_grad()
def check_checkpoint(model: nn.Module, images: torch.Tensor, other: torch.device) -> None:
    """Saves the model, loads it on the `other` device, and checks that both give the same outputs."""
    model.eval()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "digits.pt"
        torch.save(model.state_dict(), path)
        loaded = make_model(seed=0).to(other)
        loaded.load_state_dict(torch.load(path, map_location=other, weights_only=True))
        loaded.eval()
    device = next(model.parameters()).device
    torch.testing.assert_close(loaded(images.to(other)).cpu(), model(images.to(device)).cpu(), rtol=1e-4, atol=1e-4)


def peak_bytes(device: torch.device) -> int:
    """The peak of the memory of tensors on the device; 0 on the CPU, which does not count it."""
    return 0 if device.type == "cpu" else torch.accelerator.max_memory_allocated()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="openreg", help="where to train (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the batches (default: %(default)s)")
    parser.add_argument("--loss-log", type=Path, help="file for the loss of each step, one per line")
    options = parser.parse_args()

    device = torch.device(options.device)
    train_images, train_labels, test_images, test_labels = load_data(options.seed)
    model = make_model(options.seed).to(device)

    start = time.perf_counter()
    losses = train(model, train_images, train_labels, options.epochs, options.seed)
    seconds = time.perf_counter() - start

    if options.loss_log:
        options.loss_log.write_text("".join(f"{loss!r}\n" for loss in losses))
    check_checkpoint(model, test_images, torch.device("openreg" if device.type == "cpu" else "cpu"))
    result = {
        "accuracy": round(accuracy(model, test_images, test_labels), 4),
        "seconds": round(seconds, 3),
        "peak_bytes": peak_bytes(device),
        "device": str(device),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
