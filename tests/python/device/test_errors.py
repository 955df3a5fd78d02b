"""Wrong devices, malformed settings, failures on the device: what is raised, where, and what works after."""

from __future__ import annotations

import re

import pytest
import torch
from devices import DEVICE


@pytest.mark.parametrize(
    "use",
    [lambda: torch.Stream(f"{DEVICE}:7"), lambda: torch.Stream(7), lambda: torch.Generator(f"{DEVICE}:7")],
)
def test_a_device_that_is_not_there(use):
    with pytest.raises(RuntimeError, match=r"(?i)device index is out of range|device index out of range"):
        use()
    assert torch.accelerator.current_device_index() == 0
    assert torch.ones(2, device=DEVICE).sum().item() == 2


FAIL = """
import torch
def fail():
    torch.nn.functional.embedding(torch.tensor([9], device="openreg"), torch.ones(3, 2, device="openreg"))
"""


@pytest.mark.no_race_detection("the message names the launching line")
def test_a_failure_on_the_device_is_raised_once_by_a_synchronization(run_forked):
    result = run_forked(
        FAIL + "fail()\n"
        "try: torch.accelerator.synchronize()\n"
        "except torch.AcceleratorError as error: print(error)\n"
        "torch.accelerator.synchronize()\n"
        "assert torch.ones(3, device='openreg').sum().item() == 3\n"
    )
    assert re.match(
        r"openreg: \S*(embedding|index_select)\S* failed on openreg:0, stream 0: .*"
        r"Later work on that stream was skipped; set TORCH_OPENREG_STACKS=1 to report the line of the call, or "
        r"TORCH_OPENREG_LAUNCH_BLOCKING=1 to raise the error at the call",
        result.stdout,
    )


def test_a_failure_is_raised_at_the_call_where_launches_block(run_forked):
    result = run_forked(
        FAIL + "try: fail()\nexcept IndexError as error: print(error)\n",
        TORCH_OPENREG_LAUNCH_BLOCKING="1",
    )
    assert "index out of range" in result.stdout


@pytest.mark.no_race_detection("the message names the launching line")
@pytest.mark.parametrize("polled", ["torch.accelerator.current_stream()", "torch.Event('openreg')"])
def test_polling_raises_a_failure_as_waiting_does(run_forked, polled):
    result = run_forked(
        FAIL + "fail()\n"
        f"polled = {polled}\n"
        "if isinstance(polled, torch.Event): polled.record()\n"
        "try:\n"
        "    while not polled.query(): pass\n"
        "except torch.AcceleratorError as error: print(error)\n"
        "assert polled.query()\n"
        "torch.accelerator.synchronize()\n"
    )
    assert "failed on openreg:0, stream 0: " in result.stdout


def test_of_two_failures_each_is_raised_once(run_forked):
    result = run_forked(
        FAIL + "for stream in (torch.Stream('openreg'), torch.Stream('openreg')):\n"
        "    with stream: fail()\n"
        "for _ in range(2):\n"
        "    try: torch.accelerator.synchronize()\n"
        "    except torch.AcceleratorError as error: print(error)\n"
        "torch.accelerator.synchronize()\n"
    )
    # Which stream fails first is up to the engines.
    assert sorted(re.findall(r"failed on openreg:0, stream (\d)", result.stdout)) == ["1", "2"]
    assert not result.stderr


def test_a_failure_that_no_call_collected_is_printed_once_at_exit(run_forked):
    result = run_forked(FAIL + "fail()\ntorch.openreg.empty_cache()\n")
    assert len(re.findall("openreg: .* failed on openreg:0", result.stderr)) == 1


def test_a_failure_of_what_is_queued_at_exit_is_printed(run_forked):
    result = run_forked(FAIL + "x = torch.ones(300, 300, device='openreg')\nfor _ in range(5): x = x @ x\nfail()\n")
    assert len(re.findall("openreg: .* failed on openreg:0", result.stderr)) == 1


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("TORCH_OPENREG_DEVICES", "none", "64"),
        pytest.param(*("TORCH_OPENREG_DEVICES", "0", "64"), marks=pytest.mark.full),
        pytest.param(*("TORCH_OPENREG_DEVICES", "65", "64"), marks=pytest.mark.full),
        ("TORCH_OPENREG_ENGINES", "-1", "1024"),
        ("TORCH_OPENREG_MEMORY", "8 apples", "GiB"),
        ("TORCH_OPENREG_LAUNCH_BLOCKING", "yes", "1"),
        pytest.param(*("TORCH_OPENREG_FAULT_MESSAGE", "2", "1"), marks=pytest.mark.full),
    ],
)
def test_a_malformed_setting_is_reported_at_first_use_and_every_later_one(run_forked, variable, value, allowed):
    code = (
        "import torch\n"
        "torch.manual_seed(3)\n"
        "assert not torch.openreg.is_available() and torch.openreg.device_count() == 0\n"
        "assert torch.ones(2).sum().item() == 2\n"
        "for use in (torch.openreg.init, lambda: torch.ones(1, device='openreg'), torch.openreg.Stream,\n"
        "            lambda: torch.accelerator.set_device_index(0), torch.openreg.initial_seed):\n"
        "    try: use()\n"
        "    except RuntimeError as error: print(error)\n"
    )
    result = run_forked(code, **{variable: value})
    lines = result.stdout.splitlines()
    assert len(lines) == 5
    assert result.stderr == lines[0] + "; there are no devices\n"
    for line in lines:
        assert variable in line and value in line and allowed in line


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("TORCH_OPENREG_DEVICE", "TORCH_OPENREG_DEVICES"),
        pytest.param(*("TORCH_OPENREG_NUM_ENGINES", "TORCH_OPENREG_ENGINES"), marks=pytest.mark.full),
        pytest.param(*("TORCH_OPENREG_LAUNCHBLOCKING", "TORCH_OPENREG_LAUNCH_BLOCKING"), marks=pytest.mark.full),
        ("TORCH_OPENREG_memory", "TORCH_OPENREG_MEMORY"),
    ],
)
def test_a_misspelt_setting_is_named_once_at_the_first_use(run_forked, misspelt, meant):
    result = run_forked(
        "import sys, torch\n"
        "assert torch.openreg.device_count() == 2\n"
        "print('not used yet', file=sys.stderr)\n"
        "for i in range(2): torch.ones(1, device=f'openreg:{i}')\n",
        **{misspelt: "1"},
    )
    sentence = f"openreg: {misspelt} is not a setting; did you mean {meant}?"
    assert result.stderr.splitlines() == ["not used yet", sentence]


def test_the_number_of_devices_is_a_setting(run_forked):
    run_forked(
        "import torch\n"
        "assert torch.accelerator.device_count() == 5 == len(torch.openreg.default_generators)\n"
        "assert torch.ones(1, device='openreg:4').item() == 1\n",
        TORCH_OPENREG_DEVICES="5",
    )


def test_backward_threads_are_one_per_device(run_forked):
    result = run_forked(
        "import glob, torch\n"
        "for i in range(2):\n"
        "    x = torch.ones(1, device=f'openreg:{i}', requires_grad=True)\n"
        "    (x * 2).backward()\n"
        "    assert x.grad.item() == 2\n"
        "print(sorted({open(n).read().strip() for n in glob.glob('/proc/self/task/*/comm')}))\n"
    )
    assert "pt_autograd_0" in result.stdout and "pt_autograd_1" in result.stdout


def test_host_access_to_device_memory_names_the_address_and_dies(run_forked):
    result = run_forked(
        "import ctypes, torch\n"
        "x = torch.ones(4, device='openreg')\n"
        "torch.accelerator.synchronize()\n"
        "ctypes.c_float.from_address(x.data_ptr()).value\n",
        check=False,
    )
    assert result.returncode == -11
    assert "openreg: host code accessed device memory of openreg:0" in result.stderr
    assert ".cpu()" in result.stderr
