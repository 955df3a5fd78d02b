"""A network learns on the device as on the CPU."""

import copy

import torch
from torch import nn


def losses(device, network, images, labels, steps=20):
    network = copy.deepcopy(network).to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    images, labels, found = images.to(device), labels.to(device), []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def test_training_equals_training_on_the_cpu():
    torch.manual_seed(0)
    images = torch.randn(64, 1, 8, 8)
    labels = (images.mean((1, 2, 3)) > 0).long()
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2))
    on_cpu = losses("cpu", network, images, labels)
    on_device = losses("acme", network, images, labels)
    torch.testing.assert_close(on_device, on_cpu, rtol=1e-3, atol=1e-4)
    assert on_device[-1] < on_device[0] / 2
