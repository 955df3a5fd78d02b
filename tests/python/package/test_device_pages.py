"""The pages that follow a call name functions that are in the sources, and count it as the device does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "docs/device"


def names_of_ours(text: str) -> set[str]:
    """The parts of qualified names, as `StreamImpl::enqueue_run`, but for PyTorch's."""
    qualified = re.findall(r"\b(?:\w+::)+\w+", text)
    return {part for name in qualified if not name.startswith(("at::", "c10::")) for part in name.split("::")}


@pytest.mark.parametrize("files", [["life-of-an-add.md", "add.svg"], ["life-of-a-convolution.md"]])
def test_the_functions_on_the_way_of_a_call_are_in_the_sources(files):
    sources = "\n".join(file.read_text() for kind in ("*.h", "*.cpp") for file in (ROOT / "cpp").rglob(kind))
    there = set(re.findall(r"\w+", sources))
    named = set().union(*(names_of_ours((PAGES / file).read_text()) for file in files))
    assert len(named) > 10
    assert named <= there


def test_a_convolution_is_counted_as_its_page_says():
    x, weight = torch.randn(2, 3, 11, 13, device="openreg"), torch.randn(5, 3, 3, 2, device="openreg")

    def counted():
        torch.openreg.reset_launch_stats()
        torch.nn.functional.conv2d(x, weight)
        stats = torch.openreg.launch_stats()
        return [stats[name] for name in ("boxed", "plans_made", "plan_hits")]

    launched, made, hits = counted()
    assert (launched, hits) == (1, 0) and made >= 1
    assert counted() == [1, 0, 1]
