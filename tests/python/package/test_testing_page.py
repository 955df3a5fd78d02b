"""The fixture that docs/testing-without-an-accelerator.md gives to test suites."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs/testing-without-an-accelerator.md"

TESTS = """
import torch

def test_leaves_an_error_behind():
    torch.ones(2, device="openreg").index_select(0, torch.tensor([5], device="openreg"))

def test_is_not_to_blame():
    torch.accelerator.synchronize()
"""


def run(folder: Path) -> str:
    (folder / "test_two.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "-c", "/dev/null", folder]
    return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout


def test_an_error_is_that_of_its_own_test(tmp_path):
    assert re.search(r"FAILED .*test_is_not_to_blame", run(tmp_path))
    [fixture] = re.findall(r"```python\n(import pytest\n.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "conftest.py").write_text(fixture)
    output = run(tmp_path)
    assert re.search(r"PASSED .*test_is_not_to_blame", output), output
    assert re.search(r"ERROR .*test_leaves_an_error_behind", output), output
