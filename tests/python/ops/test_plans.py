"""What a call will do is planned once: what `launch_stats` counts of plans and probes."""

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE

MIB = 1 << 20


def counted(call) -> dict[str, int]:
    """What a call adds to the statistics."""
    before = torch.openreg.launch_stats()
    call()
    after = torch.openreg.launch_stats()
    return {name: after[name] - before[name] for name in after}


def test_a_call_that_finds_its_plan_is_not_planned_again():
    x = torch.randn(17, 19, device=DEVICE)
    calls = [lambda: x + x, lambda: torch.softmax(x, 1), lambda: F.hardswish(x), lambda: x.clone()]
    for call in calls:
        call()
    for call in calls:
        stats = counted(call)
        assert stats["plans_made"] == stats["probes"] == 0
        assert stats["plan_hits"] >= 1


def test_numbers_that_only_scale_need_no_new_plan():
    x = torch.randn(23, device=DEVICE)
    torch.add(x, x, alpha=0.5)
    assert counted(lambda: torch.add(x, x, alpha=0.25))["plans_made"] == 0
    assert counted(lambda: torch.add(x, x, alpha=-0.25))["plans_made"] > 0  # of another sign


def test_a_learning_rate_that_changes_needs_no_new_plan():
    p = torch.nn.Parameter(torch.randn(29, device=DEVICE))
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9, fused=True)
    p.grad = torch.randn(29, device=DEVICE)
    for _ in range(3):
        optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.05
    assert counted(optimizer.step)["probes"] == 0


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 8, 3, stride=2),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 4),
    )


def train(model, image):
    model.zero_grad()
    loss = model(image).square().sum()
    loss.backward()
    return loss


def test_new_image_sizes_are_not_probed_and_the_results_are_the_cpus():
    torch.manual_seed(0)
    on_cpu = network()
    model = network().to(DEVICE)
    model.load_state_dict(on_cpu.state_dict())
    for size in (16, 20):
        train(model, torch.randn(4, 3, size, size, device=DEVICE))
        train(on_cpu, torch.zeros(4, 3, size, size))
    model.load_state_dict(on_cpu.state_dict())
    for size in (25, 31, 48):
        image = torch.randn(4, 3, size, size)
        losses = []
        stats = counted(lambda image=image, losses=losses: losses.append(train(model, image.to(DEVICE))))
        assert stats["probes"] == 0, size
        torch.testing.assert_close(losses[0].cpu(), train(on_cpu, image), rtol=1e-4, atol=1e-5)
        for ours, cpus in zip(model.parameters(), on_cpu.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), cpus.grad, rtol=1e-3, atol=1e-4)


def test_new_lengths_of_attention_are_not_probed():
    def attend(length: int) -> torch.Tensor:
        qkv = torch.randn(2, length, 3, 4, 16, device=DEVICE, requires_grad=True)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out.sum().backward()
        return out

    attend(10)
    attend(11)
    assert counted(lambda: attend(37))["probes"] == 0


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_probe_of_a_large_convolution_needs_little_memory(channels_last):
    image = torch.empty(32, 16, 96, 96, device=DEVICE)
    weight = torch.empty(24, 16, 3, 3, device=DEVICE)
    if channels_last:
        image = image.to(memory_format=torch.channels_last)
    stats = counted(lambda: F.conv2d(image, weight, padding=1))
    assert stats["probe_bytes"] < MIB
    out = F.conv2d(image, weight, padding=1)
    assert out.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


def test_a_convolution_with_more_than_64_mib_of_weights():
    image, weight = torch.randn(1, 4096, 3), torch.randn(4096, 4096, 1)
    x, w = image.to(DEVICE), weight.to(DEVICE)
    stats = counted(lambda: F.conv1d(x, w))
    assert stats["probes"] == 1 and stats["host_waits"] == 0
    torch.testing.assert_close(F.conv1d(x, w).cpu(), F.conv1d(image, weight), rtol=1e-4, atol=1e-2)


@pytest.mark.any_device
def test_results_that_a_kernel_makes_itself_lie_in_device_memory_with_its_values():
    x = torch.randn(3, 5, 14, 14)
    weight = torch.randn(7, 5, 3, 3)
    expected = F.conv2d(x, weight)
    got = F.conv2d(x.to(DEVICE), weight.to(DEVICE))
    assert got.device.type == DEVICE
    torch.testing.assert_close(got.cpu(), expected)


def test_a_probe_of_a_large_call_reads_what_is_there():
    x = torch.randn(17 * MIB, device=DEVICE)  # 68 MiB
    expected = torch.roll(x.cpu(), 5)
    stats = counted(lambda: torch.roll(x, 5))
    assert stats["probes"] == stats["host_waits"] == 1
    assert stats["probe_bytes"] == 0
    stats = counted(lambda: torch.roll(x, 5))
    assert stats["probes"] == stats["host_waits"] == 0
    assert torch.equal(torch.roll(x, 5).cpu(), expected)


@pytest.mark.any_device
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16], ids=str)
def test_a_number_in_a_tensor_of_the_host_is_refused_at_the_call(dtype):
    x = torch.arange(6, dtype=dtype, device=DEVICE)
    for number in (2, 3):
        assert (x // torch.tensor(number, dtype=dtype)).tolist() == [n // number for n in range(6)]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        x // torch.tensor(0, dtype=dtype)
    assert (x // torch.tensor(4, dtype=dtype)).tolist() == [0, 0, 0, 0, 1, 1]


@pytest.mark.any_device
def test_numbers_beyond_int64_are_whole():
    x = torch.zeros(3, dtype=torch.uint64, device=DEVICE)
    for number in (2**63 - 1, 2**63, 2**64 - 1, 2**64 - 2):
        assert x.fill_(number).tolist() == [number] * 3
        assert (x == number).all().item() and not (x == number - 1).any().item()


@pytest.mark.any_device
def test_a_convolution_by_lists_of_one_number_is_the_cpus():
    x, weight = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3)
    overrideable = torch.ops.aten.convolution_overrideable
    for stride in (1, 2):
        lists = dict(stride=[stride], padding=[1], dilation=[1], transposed=False, output_padding=[0], groups=1)
        expected = torch.convolution(x, weight, None, **lists)
        for function in (torch.convolution, overrideable):
            got = function(x.to(DEVICE), weight.to(DEVICE), None, **lists)
            torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.any_device
def test_a_gradient_of_a_convolution_with_too_few_dimensions_has_the_sentence_of_the_cpu():
    tensors = torch.ones(2, 4, 9), torch.ones(2, 3, 9, 9), torch.ones(4, 3, 3, 3)
    rest = [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True]
    with pytest.raises(RuntimeError) as expected:
        torch.ops.aten.convolution_backward(*tensors, None, *rest)
    with pytest.raises(RuntimeError) as got:
        torch.ops.aten.convolution_backward_overrideable(*(each.to(DEVICE) for each in tensors), *rest)
    assert str(got.value) == str(expected.value)


@pytest.mark.any_device
@pytest.mark.parametrize("shape", [(8,), (4, 8), (2, 4, 8)])
def test_attention_of_too_few_dimensions_has_the_sentence_of_the_cpu(shape):
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    x = torch.ones(shape)
    with pytest.raises((RuntimeError, IndexError)) as expected:
        attend(x, x, x)
    with pytest.raises(type(expected.value)) as got:
        attend(*[x.to(DEVICE)] * 3)
    assert str(got.value) == str(expected.value)
