"""scripts/check_tests.py: sources whose test is not found, and rows of the table that lead nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from modules import load

ROOT = Path(__file__).resolve().parents[3]
TREE = {
    "cpp/runtime/wait.h": "",
    "cpp/runtime/wait.cpp": "",
    "cpp/ops/dot.cpp": "",
    "python/torch_openreg/openreg/streams.py": "def set_stream(): ...",
    "python/torch_openreg/_exit.py": "",
    "tests/cpp/runtime/wait_test.cpp": '#include "runtime/wait.h"',
    "tests/python/ops/test_dot.py": "",
    "tests/python/device/test_streams.py": "openreg.set_stream(s)",
    "tests/python/device/test_exit.py": "from torch_openreg import _exit",
}


def complaints(tree: Path, rows: str = "", **changed: str) -> list[str]:
    """`changed`: the text of a file, by its stem."""
    checker = load(ROOT / "scripts/check_tests.py")
    checker.ROOT = tree
    table = f"<!-- sources: scripts/check_tests.py -->\n\n| sources | tests |\n|---|---|\n{rows}"
    files = {name: changed.get(Path(name).stem, text) for name, text in TREE.items()}
    for name, text in (files | {"tests/README.md": table}).items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    return list(checker.complaints())


def test_tests_of_the_same_name_need_no_row(tmp_path: Path) -> None:
    assert complaints(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["cpp/ops/put.cpp", "cpp/ops/wait.cpp", "cpp/memory/dot.h", "packages/a/src/a/wait.py"]
)
@pytest.mark.parametrize("row", ["", "| `{}` | `test_dot.py` |", "| `{}/*` | `ops/test_dot.py` |"])
def test_finds_a_source_without_a_test_of_its_name_or_a_row(tmp_path: Path, name: str, row: str) -> None:
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    source = name.rpartition(".")[0]
    expected = [] if row else [f"{source}: no test has its name; add a row to tests/README.md"]
    assert complaints(tmp_path, row.format(source.rpartition("/")[0] if "*" in row else source)) == expected


@pytest.mark.parametrize(("test", "source"), [("test_streams", "openreg/streams"), ("test_exit", "_exit")])
def test_finds_a_test_of_the_same_name_that_is_about_something_else(tmp_path: Path, test: str, source: str) -> None:
    other = {test: "memory_stats()"}
    path = f"tests/python/device/{test}.py"
    expected = f"python/torch_openreg/{source}: {path} has its name and does not use it; add a row to tests/README.md"
    assert complaints(tmp_path, **other) == [expected]
    assert complaints(tmp_path, f"| `{source}` | `{path}` |", **other) == []


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("| `fence` | `wait_test.cpp` |", "0 sources are called fence"),
        ("| `fence/*` | `wait_test.cpp` |", "0 sources are called fence/*"),
        ("| `wait` | `fence_test.cpp` |", "0 tests are called fence_test.cpp"),
        ("| `wait` | `runtime`, `it_test.cpp` |", "0 tests are called it_test.cpp"),
    ],
)
def test_finds_rows_that_lead_nowhere(tmp_path: Path, row: str, complaint: str) -> None:
    assert [each.partition(": ")[2].rstrip(": ") for each in complaints(tmp_path, row)] == [complaint]


def test_a_row_names_one_source(tmp_path: Path) -> None:
    (tmp_path / "cpp/ops").mkdir(parents=True)
    (tmp_path / "cpp/ops/wait.cpp").touch()
    assert (
        "2 sources are called wait: cpp/ops/wait, cpp/runtime/wait" in complaints(tmp_path, "| `wait` | `runtime` |")[0]
    )
    assert complaints(tmp_path, "| `ops/wait` | `runtime` |") == []
