"""The code of docs/custom-operators.md runs, and computes what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from waits import no_waits

PAGE = Path(__file__).parents[3] / "docs/custom-operators.md"


@pytest.fixture(scope="module")
def page():
    """The names that the page's code defines, and what it prints."""
    code, printed = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)), []
    names = {"print": printed.append}
    with torch.library._scoped_library("page", "FRAGMENT"):
        exec(compile(code, str(PAGE), "exec"), names)
        yield names | {"printed": printed}


@pytest.mark.full
def test_opcheck_succeeds(page):
    (report,) = page["printed"]
    assert len(report) >= 4 and set(report.values()) == {"SUCCESS"}


@pytest.mark.full
def test_the_devices_kernel_neither_waits_nor_falls_back(page):
    x, gate = (torch.randn(3, 4, device="openreg") for _ in range(2))
    before = torch.openreg.launch_stats()["cpu_fallbacks"]
    with no_waits():
        got = page["gated"](x, gate)
    assert torch.openreg.launch_stats()["cpu_fallbacks"] == before
    assert_close(got.cpu(), page["gated"](x.cpu(), gate.cpu()))


@pytest.mark.full
@pytest.mark.parametrize("name", ["function", "operator"])
def test_autocast_and_gradients(page, name):
    call = page["Gated"].apply if name == "function" else page["gated"]
    x, gate = (torch.randn(3, 4, device="openreg", dtype=torch.float16, requires_grad=True) for _ in range(2))
    with torch.autocast("openreg"):
        out = call(x, gate)
    assert out.dtype == torch.float32
    out.sum().backward()
    assert x.grad.dtype == torch.float16
    assert_close(x.grad, torch.sigmoid(gate))
