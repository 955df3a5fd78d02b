"""Without computing, a program allocates what it does if it computes, to the byte, and next to no memory is used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from children import child_environment

pytestmark = pytest.mark.no_executor("nothing computes")

PROGRAMS = Path(__file__).parent / "peak_programs.py"


def figures(*arguments: str, computes: bool) -> dict[str, list[int | str]]:
    variables = {"TORCH_OPENREG_COMPUTE": str(int(computes)), "TORCH_OPENREG_MEMORY": "8GiB"}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", PROGRAMS, *arguments],
        env=child_environment([], variables),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        timeout=280,
    )
    return dict(map(json.loads, result.stdout.splitlines()))


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        (["trainings"], 13),
        (["random", "10"], 10),
        pytest.param(["random", "200"], 200, marks=pytest.mark.full),
        pytest.param(["modules"], 1700, marks=pytest.mark.full),
    ],
    ids=["trainings", "10 random programs", "200 random programs", "modules"],
)
def test_the_figures_are_those_of_a_device_that_computes(arguments, least):
    computed = figures(*arguments, computes=True)
    # What raises an error need not raise it if nothing is computed.
    computed = {name: values for name, values in computed.items() if not isinstance(values[-1], str)}
    assert len(computed) >= least
    idle = figures(*arguments, computes=False)
    assert {name: idle[name] for name in computed} == computed


def train_a_large_model():
    from resource import RUSAGE_SELF, getrusage

    def resident() -> int:
        return getrusage(RUSAGE_SELF).ru_maxrss << 10

    torch.ones(1, device="openreg") @ torch.ones(1, device="openreg")
    before = resident()
    layers = [torch.nn.Linear(1 << 15, 1 << 15, device="openreg") for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(2):
        model(torch.randn(64, 1 << 15, device="openreg")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    allocated = torch.openreg.max_memory_allocated()
    assert allocated > 3 * 4 * (4 << 30)  # parameters, gradients, momentum
    print(resident() - before)


def test_the_memory_of_the_device_is_not_used(run_alone):
    assert int(run_alone(train_a_large_model, TORCH_OPENREG_COMPUTE="0")) < 200 << 20


def allocate_too_much():
    kept = []
    try:
        for _ in range(100):
            kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="openreg"))
    except torch.OutOfMemoryError as error:
        print(len(kept), error)


def test_memory_ends_where_the_device_ends_and_not_the_machine(run_alone):
    error = run_alone(allocate_too_much, TORCH_OPENREG_COMPUTE="0", TORCH_OPENREG_MEMORY="96GiB")
    assert error.startswith("96 ")
    assert "the device has 96.00 GiB" in error


def take_the_default():
    print(torch.openreg.get_device_properties(0).total_memory >> 30)


def test_the_default_memory_does_not_depend_on_the_machine(run_alone):
    assert int(run_alone(take_the_default, TORCH_OPENREG_COMPUTE="0")) == 80
