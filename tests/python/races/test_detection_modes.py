"""How the detector is switched on, and what a race leads to then."""

from __future__ import annotations

import subprocess
import warnings

import pytest
import torch
from reports import parse

DEVICE = "openreg"

RACE = """
import torch
x = torch.ones(4, device="openreg")
with torch.openreg.stream(torch.openreg.Stream()):
    y = x + 1
torch.accelerator.synchronize()
print(y.tolist())
"""


def race() -> torch.Tensor:
    x = torch.ones(4, device=DEVICE)
    with torch.openreg.stream(torch.openreg.Stream()):
        y = x + 1
    torch.accelerator.synchronize()
    return y


def test_the_mode_is_what_was_set():
    for mode in ("off", "warn", "error"):
        torch.openreg.set_race_detection_mode(mode)
        assert torch.openreg.get_race_detection_mode() == mode
    torch.openreg.set_race_detection_mode("default")  # as the mode was called first
    assert torch.openreg.get_race_detection_mode() == "off"


def test_the_error_is_a_runtime_error_of_the_device():
    assert issubclass(torch.openreg.UnsynchronizedAccessError, RuntimeError)
    assert torch.openreg.UnsynchronizedAccessError.__module__ == "torch.openreg"
    with pytest.raises(torch.openreg.UnsynchronizedAccessError):
        race()


def test_by_default_nothing_is_compared():
    torch.openreg.set_race_detection_mode("off")
    race()


def test_races_from_before_it_was_switched_on_do_not_count():
    torch.openreg.set_race_detection_mode("off")
    x = torch.ones(4, device=DEVICE)
    torch.openreg.set_race_detection_mode("error")
    with torch.openreg.stream(torch.openreg.Stream()):
        x + 1  # setting the mode has waited


def test_warn_warns_at_the_line_and_goes_on():
    torch.openreg.set_race_detection_mode("warn")
    x = torch.ones(4, device=DEVICE)
    with warnings.catch_warnings(record=True) as caught, torch.openreg.stream(torch.openreg.Stream()):
        warnings.simplefilter("always")
        y = x + 1
    torch.accelerator.synchronize()
    assert y.shape == (4,)
    (warning,) = caught
    report = parse(str(warning.message))
    assert issubclass(warning.category, UserWarning)
    assert (report.first.op, report.second.op) == ("aten::fill_.Scalar", "aten::add.Tensor")
    assert (warning.filename, warning.lineno) == (__file__, report.second.line)


def test_warn_warns_once_for_each_pair_of_lines():
    torch.openreg.set_race_detection_mode("warn")
    streams = [torch.openreg.Stream() for _ in range(3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tensors = []
        for stream in streams:
            tensors.append(torch.ones(4, device=DEVICE))  # kept, since their memory must not be used again
            with torch.openreg.stream(stream):
                tensors.append(tensors[-1] + 1)
                tensors.append(tensors[-2] * 2)
    pairs = [(parse(str(w.message)).first.line, parse(str(w.message)).second.line) for w in caught]
    assert len(pairs) == len(set(pairs)) == 2


def test_warn_warns_again_after_it_was_switched_on_again():
    for _ in range(2):
        torch.openreg.set_race_detection_mode("off")
        torch.openreg.set_race_detection_mode("warn")
        with pytest.warns(UserWarning, match="unsynchronized accesses"):
            race()


def test_a_filter_makes_the_warning_an_error():
    """PyTorch raises it when the call returns, so that the command is submitted."""
    torch.openreg.set_race_detection_mode("warn")
    x = torch.zeros(4, device=DEVICE)
    with warnings.catch_warnings(), torch.openreg.stream(torch.openreg.Stream()):
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="unsynchronized accesses"):
            x.add_(1)


def test_a_race_that_was_reported_can_be_mended_and_goes_on():
    x = torch.ones(4, device=DEVICE)
    side = torch.openreg.Stream()
    for _ in range(2):
        with torch.openreg.stream(side), pytest.raises(torch.openreg.UnsynchronizedAccessError):
            x.add_(1)
    side.wait_stream(torch.openreg.current_stream())
    with torch.openreg.stream(side):
        x.add_(1)
    torch.openreg.current_stream().wait_stream(side)
    assert x.tolist() == [2.0] * 4


def test_the_order_counts_and_not_the_time():
    """The stream has long been idle, but nobody has looked."""
    x = torch.ones(4, device=DEVICE)
    other = torch.openreg.Stream()
    with torch.openreg.stream(other):
        other.synchronize()
        torch.openreg._sleep(1)
        for _ in range(3):
            with pytest.raises(torch.openreg.UnsynchronizedAccessError):
                x + 1


def run(run_forked, value: str | None, code: str = RACE, check: bool = True) -> subprocess.CompletedProcess[str]:
    return run_forked(code, check=check, TORCH_OPENREG_DETECT_RACES=value)


def test_the_variable_raises(run_forked):
    result = run(run_forked, "1", check=False)
    assert result.returncode == 1 and result.stdout == ""
    last = result.stderr[result.stderr.index("torch.openreg.UnsynchronizedAccessError: ") :]
    assert "aten::fill_.Scalar wrote `self` (4 elements, float32)" in last
    assert "launched by <string>:3 in <module>" in last and "launched by <string>:5 in <module>" in last


def test_the_variable_warns(run_forked):
    result = run(run_forked, "warn")
    assert result.stdout != ""
    assert result.stderr.count("unsynchronized accesses to the same memory") == 1


@pytest.mark.parametrize("value", [None, "0"])
def test_without_the_variable_nothing_is_compared(run_forked, value):
    result = run(run_forked, value)  # it prints what the race leads to
    assert result.stdout != "" and result.stderr == ""


def test_the_variable_is_the_first_mode(run_forked):
    code = "import torch; print(torch.openreg.get_race_detection_mode())"
    assert run(run_forked, "1", code).stdout == "error\n"
    assert run(run_forked, "warn", code).stdout == "warn\n"
    assert run(run_forked, None, code).stdout == "off\n"


@pytest.mark.parametrize("value", ["", "Warn", *(pytest.param(each, marks=pytest.mark.full) for each in ("yes", "2"))])
def test_malformed_values_are_refused(run_forked, value):
    result = run(run_forked, value, check=False)
    assert result.returncode != 0
    assert "TORCH_OPENREG_DETECT_RACES" in result.stderr and f'got "{value}"' in result.stderr


def test_a_forked_child_that_does_not_use_the_device_is_unharmed(run_forked):
    code = "import os, torch\ntorch.ones(4, device='openreg')\npid = os.fork()\nif pid == 0: os._exit(7)\n"
    code += "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    assert run(run_forked, "1", code).stdout == "7\n"


@pytest.mark.parametrize("stacks", ["0", "1"])
def test_errors_of_commands_have_lines_while_races_are_looked_for(run_forked, stacks):
    code = """
import torch

def error_has_a_line():
    torch.ones(2, device="openreg")[torch.tensor([9], device="openreg")]
    try:
        torch.accelerator.synchronize()
    except torch.AcceleratorError as error:
        return "launched by" in str(error)

for mode in ("off", "error", "off"):
    torch.openreg.set_race_detection_mode(mode)
    print(error_has_a_line())
"""
    result = run_forked(code, TORCH_OPENREG_STACKS=stacks, TORCH_OPENREG_DETECT_RACES=None)
    without_races = str(stacks == "1")
    assert result.stdout.split() == [without_races, "True", without_races]


def test_waits_of_blocking_launches_are_not_the_programs(run_forked):
    result = run_forked(RACE, check=False, TORCH_OPENREG_DETECT_RACES="1", TORCH_OPENREG_LAUNCH_BLOCKING="1")
    assert result.returncode == 1 and "UnsynchronizedAccessError" in result.stderr
