"""The code of docs/graphs.md runs, and computes what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

PAGE = Path(__file__).parents[3] / "docs/graphs.md"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory):
    """The names that the page's code defines, and what it prints."""
    code, printed = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)), []
    names = {"print": printed.append}
    folder = tmp_path_factory.mktemp("graphs")
    exec(compile(code.replace("graph.dot", str(folder / "graph.dot")), str(PAGE), "exec"), names)
    return names | {"printed": printed, "dot": (folder / "graph.dot").read_text()}


def test_the_training_step_trains(page):
    (last,) = page["printed"]
    with torch.no_grad():
        page["inputs"].normal_()
        page["targets"].copy_(page["inputs"].sum(1, keepdim=True))
        before = [parameter.clone() for parameter in page["model"].parameters()]
    assert last > 0
    assert any(parameter.abs().sum() > 0 for parameter in before)


def test_the_replayed_part_computes_what_the_layer_does(page):
    layer, x = page["block"], page["x"]
    expected = torch.nn.functional.linear(x, layer.weight, layer.bias)
    assert_close(layer(x), expected, rtol=0, atol=0)
    assert layer.weight.grad is not None


def test_the_graph_is_in_the_file(page):
    assert page["dot"].startswith("digraph openreg {")
    assert "aten::mul.Tensor" in page["dot"] and "n0 -> n1;" in page["dot"]
