"""The smallest backend that trains: a device called "tiny", in C++ (smallest_backend.cpp) and in this file.

    python examples/smallest_backend.py    # the first run builds it, with g++ (or clang++) and ninja

It is for engineers who bring up a backend: docs/device/index.md describes the parts. The device uses host memory and
PyTorch's CPU kernels. It has nothing to do with openreg: PyTorch has one slot for out-of-tree backends, so the two
cannot be in one process, and this program keeps PyTorch from loading torch_openreg.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import torch
from torch import nn
from torch.utils import cpp_extension


def load_backend(build_directory: str | None = None) -> None:
    """Builds and loads the library, then gives the device its name and its module: ``torch.tiny``.

    Args:
        build_directory: where to build, which is created if necessary; None means PyTorch's cache.
    """
    if build_directory is not None:
        Path(build_directory).mkdir(parents=True, exist_ok=True)
    cpp_extension.load(
        "smallest_backend",
        [str(Path(__file__).with_name("smallest_backend.cpp"))],
        build_directory=build_directory,
        extra_cflags=["-O1"],
        is_python_module=False,
    )
    atexit.register(torch.ops.tiny.settle_autograd)
    torch.utils.rename_privateuse1_backend("tiny")

    generator = torch.ops.tiny.default_generator()
    module = SimpleNamespace(
        # torch.accelerator, and optimizers
        is_available=lambda: True,
        device_count=lambda: 1,
        # torch.manual_seed: a backend whose threads do not survive fork() returns True in a forked child
        _is_in_bad_fork=lambda: False,
        manual_seed_all=generator.manual_seed,
        # torch.random.fork_rng
        get_rng_state=lambda device=0: generator.get_state(),
        set_rng_state=lambda state, device=0: generator.set_state(state),
    )
    torch._register_device_module("tiny", module)


def error_of(index: int) -> str:
    """The first line of the error for a device that does not exist."""
    try:
        torch.ones(2, device=f"tiny:{index}")
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return "none"


def random_numbers() -> list[float]:
    """Three numbers from the device's default generator."""
    return torch.rand(3, device="tiny").tolist()


def gradients_of_lstm(device: str) -> torch.Tensor:
    """All derivatives of a small network, one after another, on the CPU."""
    torch.manual_seed(0)
    layers, x, target = nn.LSTM(4, 5, 2), torch.randn(3, 2, 4), torch.randn(3, 2, 5)
    layers.to(device)
    nn.functional.mse_loss(layers(x.to(device))[0], target.to(device)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in layers.parameters()]).cpu()


def train(steps: int) -> list[float]:
    """The losses of a small convolutional network that learns the sign of the mean of an image."""
    images = torch.randn(64, 1, 8, 8, device="tiny")
    labels = (images.mean((1, 2, 3)) > 0).long()
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.to("tiny")  # keeps the parameters that the optimizer has
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def show() -> dict[str, Any]:
    """What works, by stages of docs/device/index.md."""
    report: dict[str, Any] = {}

    # 1. Tensors: factories, views, copies.
    x = torch.tensor([3.0, 1.0, 2.0], device="tiny")
    x[1:].view(2, 1).mul_(10)  # a view has the storage of its base
    report["device"] = str(x.device)
    report["back on the CPU"] = x.cpu().tolist()
    report["error"] = error_of(3)

    # 2. Operators: the library has no kernel for any of these.
    report["sorted"] = x.sort().values.tolist()
    report["inverse"] = torch.linalg.inv(torch.tensor([[2.0, 0.0], [0.0, 4.0]], device="tiny")).tolist()

    # 3. Training: derivatives and random numbers.
    x.requires_grad_()
    (x * x).sum().backward()
    report["gradient"] = x.grad.tolist()
    torch.manual_seed(0)
    first = random_numbers()
    second = random_numbers()
    with torch.random.fork_rng():
        forked = random_numbers()
    report["fork_rng restores"] = forked == random_numbers()
    torch.manual_seed(0)
    report["manual_seed repeats"] = [random_numbers(), random_numbers()] == [first, second]
    generator = torch.Generator(device="tiny").manual_seed(0)
    report["Generator repeats"] = torch.rand(3, device="tiny", generator=generator).tolist() == first
    report["calls differ"] = first != second
    ones = torch.ones(100, device="tiny")
    torch.manual_seed(0)
    dropped = nn.functional.dropout(ones)
    torch.manual_seed(0)
    torch.random.default_generator.seed()  # the CPU's, from which the device does not draw
    report["dropout repeats"] = torch.equal(nn.functional.dropout(ones), dropped)
    norm = nn.BatchNorm1d(1, momentum=1.0).to("tiny")
    norm(torch.tensor([[1.0], [5.0]], device="tiny"))
    report["running mean"] = norm.running_mean.item()
    report["LSTM as the CPU"] = torch.allclose(gradients_of_lstm("tiny"), gradients_of_lstm("cpu"), atol=1e-6)
    losses = train(steps=30)
    report["losses"] = [losses[0], losses[-1]]
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build-directory", help="where to build the library")
    options = parser.parse_args()
    load_backend(options.build_directory)
    print(json.dumps(show()))


if __name__ == "__main__":
    main()
