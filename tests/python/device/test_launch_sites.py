"""``TORCH_OPENREG_STACKS=1``: an error of a command names the line of the program that launched it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = Path(__file__).with_name("launch_sites.py")


@pytest.fixture(scope="module")
def child():
    environment = {**os.environ, "TORCH_OPENREG_STACKS": "1"}
    return subprocess.run(
        [sys.executable, str(PROGRAM)], env=environment, capture_output=True, text=True, timeout=120, check=True
    )


@pytest.fixture(scope="module")
def results(child):
    return json.loads(child.stdout.splitlines()[-1])


def line_of(text):
    """`FILE:LINE` of the one line of the program with this text."""
    (number,) = [i for i, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line]
    return f"{PROGRAM}:{number}"


LINE_OF_FAIL = line_of("the line of most errors")


def test_an_asynchronous_error_names_its_line(results):
    assert results["of_a_call"] == (
        f"openreg: aten::index.Tensor failed on openreg:0, stream 0, launched by {LINE_OF_FAIL} in fail: "
        "index 99 is out of bounds for dimension 0 with size 4. Later work of that stream was skipped; "
        "set TORCH_OPENREG_LAUNCH_BLOCKING=1 to stop at the call"
    )


def test_the_line_is_the_programs_and_not_pytorchs(results):
    assert f"launched by {line_of('own lines launch')} in forward" in results["of_a_module"]


@pytest.mark.parametrize("where", ["of_a_backward_pass", "of_a_thread"])
def test_launches_of_other_threads_have_their_lines(results, where):
    assert f"launched by {LINE_OF_FAIL} in fail" in results[where]


def test_a_trace_names_the_line_of_each_command(results):
    line = line_of("(x.exp() @ X).backward()")
    lines = results["lines_of_a_trace"]
    assert lines["aten::exp"] == lines["aten::dot"] == f"{line} in lines_of_a_trace"
    assert lines["aten::mul.Tensor"].startswith("the backward pass of ")


def test_an_uncollected_error_names_its_line(child):
    assert f"launched by {LINE_OF_FAIL} in fail" in child.stderr
    assert "no later call collected this error" in child.stderr


def test_without_the_setting_errors_say_how_to_get_the_line():
    torch.ones(4, device="openreg")[torch.tensor([99], device="openreg")]
    with pytest.raises(torch.AcceleratorError, match="set TORCH_OPENREG_STACKS=1 to see the line of the call, or "):
        torch.openreg.synchronize()
