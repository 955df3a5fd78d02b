"""The code of docs/compile.md runs, and asserts what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/compile.md"


@pytest.mark.full
def test_the_pages_code_runs():
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S))
    assert "torch.testing.assert_close" in code
    exec(compile(code, str(PAGE), "exec"), {})
