"""ResNet-50 in plain `torch.nn`: one evaluation and one training step on `openreg`, compared with the CPU.

The network is that of He et al., "Deep Residual Learning for Image Recognition" (2015), in the layout that torchvision
calls v1.5: if a block halves the image, its 3x3 convolution has the stride, not the first 1x1. Images and labels are
random, because only the agreement of both devices matters. The last line of the output is JSON.
"""

from __future__ import annotations

import argparse
import copy
import json
import time

import torch
from torch import nn
from torch.nn import functional

CLASSES = 1000
EXPANSION = 4  # a block's output channels, as a multiple of those of its 3x3 convolution
STAGES = [(64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)]  # channels of the 3x3 convolutions, blocks, stride


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the size of the image, apart from the stride, and a normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class Bottleneck(nn.Module):
    """Adds to its input the result of three convolutions: 1x1 to fewer channels, 3x3, 1x1 to more channels."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * channels
        self.branch = nn.Sequential(
            convolution(inputs, channels, 1),
            nn.ReLU(),
            convolution(channels, channels, 3, stride),
            nn.ReLU(),
            convolution(channels, outputs, 1),
        )
        same_shape = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same_shape else convolution(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.branch(x) + self.shortcut(x))


class ResNet50(nn.Module):
    """Images [N, 3, H, W] to scores [N, 1000]. H and W are 224 in the paper; any multiple of 32 works."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 64, 7, stride=2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
        blocks = []
        inputs = 64
        for channels, count, stride in STAGES:
            for i in range(count):
                blocks.append(Bottleneck(inputs, channels, stride if i == 0 else 1))
                inputs = EXPANSION * channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)))


def make_model(seed: int) -> ResNet50:
    """The network with weights drawn on the CPU, the same for the same seed.

    Each block starts near the identity: the scale of its last normalisation is 0.2. With 1, an untrained network
    amplifies rounding errors several times more. With 0, another common choice, no gradient reaches the branches.
    """
    torch.manual_seed(seed)
    model = ResNet50()
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, Bottleneck):
            nn.init.constant_(module.branch[-1][-1].weight, 0.2)
    return model


def make_batch(count: int, size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random images (float32, [N, 3, size, size]) and labels (int64, 0 to 999), on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, size, size, generator=generator)
    return images, torch.randint(CLASSES, (count,), generator=generator)


Tensors = dict[str, torch.Tensor]


def evaluate_and_train(model: ResNet50, images: torch.Tensor, labels: torch.Tensor) -> dict[str, Tensors]:
    """Evaluates `model` on its device, trains it for one step, and returns the results on the CPU.

    The model is changed in place. "weights" are those after the step, with the statistics of the normalisations.
    """
    device = next(model.parameters()).device
    images, labels = images.to(device), labels.to(device)

    model.eval()
    with torch.no_grad():
        outputs = model(images)

    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()

    results = {
        "outputs": {"evaluation": outputs},
        "loss": {"training": loss.detach()},
        "gradients": {name: p.grad for name, p in model.named_parameters() if p.grad is not None},
        "weights": model.state_dict(),
    }
    return {kind: {name: t.cpu() for name, t in tensors.items()} for kind, tensors in results.items()}


def largest_difference(got: Tensors, expected: Tensors) -> tuple[float, str]:
    """The largest relative difference between two tensors of the same name, and the name.

    The relative difference is the norm of the difference divided by the norm of the expected tensor. Single elements
    mean little: if rounding moves one of millions of activations across the zero of a ReLU, or makes another element
    the maximum of its window, a few gradients change a lot. A CPU with another number of threads shows this too.
    """
    if got.keys() != expected.keys():
        raise ValueError(f"different tensors: {sorted(got.keys() ^ expected.keys())}")
    differences = []
    for name, e in expected.items():
        e = e.double()
        norm = e.norm().item()
        distance = (got[name].double() - e).norm().item()
        differences.append((distance / norm if norm else distance, name))
    return max(differences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="openreg", help="the device to compare with the CPU (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=8, help="number of images (default: %(default)s)")
    parser.add_argument("--size", type=int, default=224, help="their height and width (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, images and labels (default: %(default)s)")
    options = parser.parse_args()

    images, labels = make_batch(options.batch, options.size, options.seed)
    model = make_model(options.seed)
    results, seconds = {}, {}
    for device in ("cpu", options.device):
        on_device = copy.deepcopy(model).to(device)
        start = time.perf_counter()
        results[device] = evaluate_and_train(on_device, images, labels)
        seconds[device] = round(time.perf_counter() - start, 3)

    report = {}
    print("largest relative differences from the CPU")
    for kind, expected in results["cpu"].items():
        report[kind], name = largest_difference(results[options.device][kind], expected)
        print(f"  {kind:10} {report[kind]:8.1e}  {name}")
    print(json.dumps(report | {"seconds": seconds[options.device], "device": options.device}))


if __name__ == "__main__":
    main()
