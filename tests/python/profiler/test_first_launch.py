"""An operator's first launch, which is planned, shows a program what the later ones show.

Its plan may run the CPU's kernel on stand-ins, or a meta function. Profilers, dispatch modes, callbacks, the CPU's
generator and statistics of the CPU's memory notice nothing of that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

NAMES = [f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name for op in op_db]
# Each has a plan of another kind: a probe of a small call, of a whole one, a meta function that calls operators.
SAMPLE = ["addmm", "isin", "istft", "abs", "floor_divide", "index_select", "nn.functional.conv2d", "lu", "multinomial"]


def differences(names: list[str]) -> dict[str, object]:
    program = Path(__file__).with_name("first_launches.py")
    result = subprocess.run([sys.executable, str(program), *names], capture_output=True, text=True, timeout=1500)
    assert result.returncode == 0, result.stderr[-1500:]
    return json.loads(result.stdout)


def test_the_first_launch_shows_what_the_second_shows():
    assert set(SAMPLE) <= set(NAMES)
    assert differences(SAMPLE + NAMES[::90]) == {}


@pytest.mark.full
@pytest.mark.parametrize("part", range(4))
def test_the_first_launch_of_every_operator_shows_what_the_second_shows(part):
    assert differences(NAMES[part::4]) == {}


def test_a_planner_is_counted_where_the_documentation_says_so():
    x = torch.rand(3, 7, 2, 5, device="openreg")
    before = torch.openreg.launch_stats()
    torch.isin(x, x[0, 0, 0])
    after = torch.openreg.launch_stats()
    assert after["plans_made"] > before["plans_made"] and after["probes"] > before["probes"]
