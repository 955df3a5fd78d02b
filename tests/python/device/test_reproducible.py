"""The same program gives the same bits, whoever runs its commands: an engine, or a host that waits."""

import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE

pytestmark = pytest.mark.any_device

ROUNDS = 150


def one_result(call: Callable[[], torch.Tensor]) -> bool:
    """Whether all rounds give the same bits. In every third an engine has the time to run the command."""
    first = call().cpu()
    for i in range(ROUNDS):
        result = call()
        if i % 3 == 0:
            time.sleep(0.0005)
        if not torch.equal(first, result.cpu()):
            return False
    return True


def gradient_of_norm(shape: tuple[int, ...]) -> Callable[[], torch.Tensor]:
    x = torch.randn(shape, device=DEVICE, dtype=torch.float64, requires_grad=True)
    norm = torch.nn.LayerNorm(shape[-1], device=DEVICE, dtype=torch.float64)
    y = norm(x)
    gradient = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, norm.weight, gradient, retain_graph=True)[0]


@pytest.mark.parametrize("shapes", [[(300, 64)], [(5, 6, 4), (2, 3, 4), (3, 2, 4)]], ids=["long", "short"])
def test_layer_norm_backward_is_the_same_in_every_run(shapes):
    for shape in shapes:  # the plan of one is made by a smaller call, which may be another one here
        assert one_result(gradient_of_norm(shape))


def conv_weight(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    x = b[:, :32].reshape(4, 4, 40, 100)
    weight = torch.ones(4, 4, 1, 1, device=DEVICE, requires_grad=True)
    return torch.autograd.grad(F.conv2d(x, weight), weight, x)[0]


# Each of these shares a sum among the threads that it has.
SHARED_SUMS = {
    "mm": lambda a, b: a @ b,
    "dot": lambda a, b: a.flatten() @ b.flatten()[: a.numel()],
    "batch_norm": lambda a, b: F.batch_norm(
        b.view(2, 16, 40, 75).to(memory_format=torch.channels_last), None, None, training=True
    ),
    "conv_weight": conv_weight,
}


@pytest.mark.parametrize("name", SHARED_SUMS)
def test_deterministic_algorithms_are_the_same_in_every_run(name, deterministic):
    a = torch.randn(48, 2000, device=DEVICE)
    b = torch.randn(2000, 48, device=DEVICE)
    assert one_result(lambda: SHARED_SUMS[name](a, b))


def test_deterministic_algorithms_compute_as_one_thread_of_the_cpu_does(deterministic):
    a, b = torch.randn(64, 2000), torch.randn(2000, 48)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    expected = a @ b
    torch.set_num_threads(before)
    assert torch.equal((a.to(DEVICE) @ b.to(DEVICE)).cpu(), expected)
