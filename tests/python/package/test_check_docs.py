"""scripts/check_docs.py: which files it does not find that a document names in backticks."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from modules import load

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checker(tmp_path: Path) -> ModuleType:
    checker = load(ROOT / "scripts/check_docs.py")
    checker.ROOT = tmp_path
    for name in ("cpp/ops/tiers/quirks.cpp", "scripts/lint", "tests/package/test_a.py", "tests/ops/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/other.md").write_text("```python\n# crash.py\n```\n")
    return checker


def unknown(checker: ModuleType, text: str) -> list[str]:
    page = checker.ROOT / "docs/page.md"
    page.write_text(text)
    return [complaint.removeprefix("docs/page.md: there is no ") for complaint in checker.unknown_files(page)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`quirk.cpp`", ["quirk.cpp"]),
        ("`ops/quirks.cpp`", ["ops/quirks.cpp"]),
        ("`rks.cpp`", ["rks.cpp"]),
        ("`scripts/format`", ["scripts/format"]),
        ("`python scripts/format --check`", ["scripts/format"]),
        ("`tests/*/test_c.py` and `cpp/slot/`", ["cpp/slot", "tests/*/test_c.py"]),
        ("`rash.py`", ["rash.py"]),
        (
            "<!-- files of: tests/ops cpp -->\n`test_a.py`, `test_b.py`, `quirks.cpp`, `package/test_a.py`",
            ["test_a.py"],
        ),
    ],
)
def test_finds(checker: ModuleType, text: str, names: list[str]) -> None:
    assert unknown(checker, text) == names


@pytest.mark.parametrize(
    "text",
    [
        "`quirks.cpp`, `tiers/quirks.cpp`, `cpp/ops`, `cpp/ops/tiers/quirks`, `tests/*/test_b.py`",
        "`scripts/lint --full`",
        "`crash.py`",
        "`aten/src/ATen/native/Sorting.cpp`, `torch/serialization.py`, `build/site`",
        "`torch.add`, `x.py(1)`, `aten::add/out`",
        "```sh\nscripts/format `no.py`\n```",
    ],
)
def test_accepts(checker: ModuleType, text: str) -> None:
    assert unknown(checker, text) == []
