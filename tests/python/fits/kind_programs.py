"""Programs that check what their memory is for: exact sums by kind, module and line, of models whose sizes are known.

Each function runs in a process of its own, so that the device is empty.
"""

from __future__ import annotations

import torch
from devices import DEVICE
from torch import nn
from torch.utils.checkpoint import checkpoint

MODULE = torch.get_device_module(DEVICE)

KIB, MIB = 1 << 10, 1 << 20
SIDE = 256
WEIGHT = 4 * SIDE * SIDE  # bytes
ROWS = 32
BATCH = 4 * ROWS * SIDE


def linear() -> nn.Linear:
    return nn.Linear(SIDE, SIDE, bias=False, device=DEVICE)


def batch() -> torch.Tensor:
    return torch.randn(ROWS, SIDE, device=DEVICE)


def check_sums(device) -> None:
    assert device.held == sum(device.kinds.values())
    assert device.held == sum(sum(kinds.values()) for kinds in device.modules.values())
    assert device.held == sum(device.lines.values())
    assert device.allocated == device.held == MODULE.max_memory_allocated()
    assert device.reserved == MODULE.max_memory_reserved()
    assert max(map(sum, zip(*device.curve.kinds.values(), strict=True))) == device.allocated
    assert max(device.curve.reserved) == device.reserved


def train(model, optimizer, steps=2):
    x = batch()
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()


def an_adam_step_holds_parameters_gradients_and_twice_as_much_state():
    with MODULE.fits("h100") as report:
        model = linear()
        train(model, torch.optim.Adam(model.parameters(), foreach=True))
    device = report.device
    check_sums(device)
    known = {"parameters": WEIGHT, "gradients": WEIGHT, "optimizer state": 2 * WEIGHT}
    known["inputs and other data"] = BATCH
    assert {kind: device.kinds[kind] for kind in known} == known
    # The foreach implementation needs a temporary of all parameters: the peak is in the optimizer.
    assert device.kinds["temporary, optimizer"] == device.held - sum(known.values()) >= WEIGHT
    assert (device.at.phase, device.at.module) == ("optimizer", "")
    assert report.report.steps == 2


def sgd_has_no_state_and_its_peak_is_in_the_backward_pass():
    with MODULE.fits("h100") as report:
        model = linear()
        train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps=1)
    device = report.device
    check_sums(device)
    assert device.kinds["parameters"] == device.modules["Linear"]["parameters"] == WEIGHT
    assert "optimizer state" not in device.kinds
    assert (device.at.step, device.at.phase, device.at.module) == (1, "backward", "Linear")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = linear(), linear()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.sigmoid(self.first(x)))


def activations_are_what_the_backward_pass_needs():
    # Ten blocks whose weights need no gradient: each saves the result of its sigmoid. What their products return is
    # freed. The sum takes the smallest block, 512 bytes, and so does the gradient of it that backward() makes.
    with MODULE.fits("h100") as report:
        model = nn.Sequential(*(Block() for _ in range(10))).requires_grad_(False)
        total = model(batch().requires_grad_()).sum()
        total.backward()
    device = report.device
    check_sums(device)
    assert device.kinds == {
        "parameters": 20 * WEIGHT,
        "activations": 10 * BATCH + 512,
        # The first node allocates the gradient of a sigmoid's result; the second one, that of its argument.
        "temporary, backward": 2 * BATCH,
        "inputs and other data": BATCH + 512,
    }
    assert (device.at.phase, device.at.module) == ("backward", "9")
    assert device.modules["3.first"] == {"parameters": WEIGHT}
    # The forward pass is at its peak in the last block: nine results, the block's input, its product and its sigmoid.
    assert max(device.curve.kinds["temporary, forward"]) == 2 * BATCH


def frozen_parameters_and_buffers_have_no_optimizer_and_are_found():
    with MODULE.fits("h100") as report:
        model = nn.Sequential(linear(), nn.BatchNorm1d(SIDE, device=DEVICE), linear())
        model[0].requires_grad_(False)
        train(model, torch.optim.SGD(model[2].parameters(), lr=0.1), steps=1)
    device = report.device
    check_sums(device)
    # BatchNorm: weight and bias; two buffers, and a counter in the smallest block.
    assert device.kinds["parameters"] == 2 * WEIGHT + 2 * 4 * SIDE
    assert device.kinds["buffers"] == 2 * 4 * SIDE + 512
    assert device.modules["1"]["buffers"] == device.kinds["buffers"]


def gradients_that_fused_kernels_accumulate_elsewhere_are_gradients():
    with MODULE.fits("h100") as report:
        model = linear()
        model.weight.main_grad = torch.zeros(SIDE, SIDE, device=DEVICE)
        model(batch())
        torch.empty(MIB, dtype=torch.uint8, device=DEVICE)
    assert report.device.kinds["gradients"] == WEIGHT


def copies_in_full_precision_are_state_of_the_optimizer():
    with MODULE.fits("h100") as report:
        model = linear().bfloat16()
        copy = model.weight.detach().float()
        model(batch().bfloat16()).sum().backward()
        copy.grad = model.weight.grad.float()
        torch.optim.SGD([copy], lr=0.1).step()
        torch.empty(MIB, dtype=torch.uint8, device=DEVICE)
    assert report.device.kinds["parameters"] == WEIGHT // 2
    assert report.device.kinds["optimizer state"] == WEIGHT


def parameters_without_a_module_are_parameters():
    with MODULE.fits("h100") as report:
        weight = torch.zeros(SIDE, SIDE, device=DEVICE, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (batch() @ weight).sum().backward()
            optimizer.step()
    kinds = report.device.kinds
    assert (kinds["parameters"], kinds.get("optimizer state")) == (WEIGHT, None)


def most(device, kind: str) -> int:
    """The most that the run held of a kind."""
    return max(device.curve.kinds[kind])


def a_loss_outside_of_modules_belongs_to_the_forward_pass():
    def loss(y: torch.Tensor) -> torch.Tensor:
        return y.exp().log().sum()

    with MODULE.fits("h100") as report:
        model = linear()
        loss(model(batch())).backward()
    # The result of the exponential, which is the argument of the logarithm; the sum.
    assert most(report.device, "activations") == BATCH + 512
    assert most(report.device, "inputs and other data") == BATCH + 512


def recomputed_activations_are_activations_and_their_moment_is_named():
    with MODULE.fits("h100") as report:
        model = nn.Sequential(nn.Linear(SIDE, 64 * SIDE, bias=False, device=DEVICE), nn.Sigmoid()).requires_grad_(False)
        x = batch().requires_grad_()
        checkpoint(lambda x: model(x), x, use_reentrant=False).sum().backward()
    device = report.device
    check_sums(device)
    # The result of the sigmoid, once more, beside the gradient that the checkpoint's result has.
    assert device.at.phase in ("recomputation", "backward")
    assert most(device, "activations") == 64 * BATCH + 512


def a_program_without_a_backward_pass_keeps_what_it_passes_between_modules():
    with MODULE.fits("h100") as report, torch.no_grad():
        Block()(batch())
    device = report.device
    check_sums(device)
    assert device.kinds["parameters"] == 2 * WEIGHT
    assert device.kinds["activations"] >= BATCH
    assert device.at.step is None


def a_sharded_model_holds_its_part_and_gathers_modules():
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    with MODULE.fits("h100") as report:
        model = nn.Sequential(*(linear() for _ in range(4)))
        for module in model:
            fully_shard(module)
        fully_shard(model)
        train(model, torch.optim.AdamW(model.parameters(), foreach=True))
    dist.destroy_process_group()
    device = report.device
    check_sums(device)
    assert most(device, "parameters") == most(device, "gradients") == 4 * WEIGHT // 8
    assert most(device, "optimizer state") == 2 * 4 * WEIGHT // 8
    assert most(device, "parameters, gathered") in (WEIGHT, 2 * WEIGHT)  # the next module is gathered in advance


def wrappers_do_not_show_in_the_names_of_modules():
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    with MODULE.fits("h100") as report:
        model = nn.Sequential(checkpoint_wrapper(linear()), nn.Sequential(checkpoint_wrapper(linear())))
        train(model, torch.optim.SGD(model.parameters()))
    assert {"0", "1.0"} <= report.device.modules.keys() <= {"", "0", "1", "1.0", "Sequential"}


def memory_that_was_held_before_counts_and_is_classified():
    model, kept = linear(), batch()
    with MODULE.fits("h100") as report:
        model(kept)
    device = report.device
    check_sums(device)
    assert device.kinds["parameters"] == WEIGHT
    assert device.kinds["inputs and other data"] == BATCH


def lines_are_those_of_the_program():
    with MODULE.fits("h100") as report:
        x = torch.zeros(MIB, device=DEVICE)  # the line
        del x
    (line,) = report.device.lines
    assert line.endswith("in lines_are_those_of_the_program")
    assert "kind_programs.py:" in line


def a_backward_pass_has_the_modules_and_lines_of_the_forward_pass():
    with MODULE.fits("h100") as report:
        model = Block()
        model(batch().requires_grad_()).sum().backward()
        model = None
    device = report.device
    assert {"first", "second"} <= device.modules.keys()
    assert device.at.module in ("first", "second")
    assert any("kind_programs.py" in line for line in device.lines)
