"""Checks that the test of each source is found: by its name, or in the table of tests/README.md.

A row names sources by the end of their path, without the suffix, and tests by the end of theirs. With a `*`, it is for
those sources that have neither a test of their name nor a row of their own.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SOURCES = ("cpp/**/*.cpp", "cpp/**/*.h", "python/torch_openreg/**/*.py", "packages/*/src/**/*.py")
_TESTS = ("tests/**/*_test.cpp", "tests/python/**/test_*.py", "packages/*/tests/**/test_*.py")
_TEMPLATE = "/project/"  # in the kit: sources of projects that it writes
_TABLE = re.compile(r"(?<=^<!-- sources: scripts/check_tests.py -->\n\n).*?(?=\n\n|\Z)", re.M | re.S)
_SPAN = re.compile(r"`([^`]+)`")


def files(patterns: tuple[str, ...]) -> list[str]:
    found = {path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(path for path in found if _TEMPLATE not in path)


def rows() -> Iterator[tuple[list[str], list[str]]]:
    """The sources and the tests of each row of the table."""
    for line in _TABLE.findall((ROOT / "tests/README.md").read_text())[0].splitlines()[2:]:
        sources, tests = line.strip("| ").split(" | ")
        yield _SPAN.findall(sources), _SPAN.findall(tests)


def is_end(path: str, name: str) -> bool:
    return fnmatchcase(f"/{path}", f"*/{name}")


def is_test_of(test: str, source: str) -> bool | None:
    """Whether a test of a source's name is about that source; None if it is in another place than people look."""
    area, *inner = source.split("/")
    text = (ROOT / test).read_text()
    if area == "cpp" and test.endswith(".cpp"):
        return f'"{source[4:]}.h"' in text or test == f"tests/{source}_test.cpp" or None
    if area != "python":
        return test.startswith(f"tests/python/{inner[0]}/" if area == "cpp" else f"{area}/{inner[0]}/tests/") or None
    if not test.startswith("tests/python/"):
        return None
    if "/_" in source:
        uses = "(?:[.]| import .*)".join(inner[1:])
    else:
        nodes = ast.parse((ROOT / f"{source}.py").read_text()).body
        names = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        uses = "|".join(name for name in names if not name.startswith("_")) or inner[-1]
    return re.search(rf"\b(?:{uses})\b", text) is not None


def complaints() -> Iterator[str]:
    sources = {path.rpartition(".")[0] for path in files(_SOURCES) if Path(path).stem not in ("__init__", "__main__")}
    by_name: dict[str, list[str]] = {}
    for test in files(_TESTS):
        by_name.setdefault(Path(test).stem.removeprefix("test_").removesuffix("_test"), []).append(test)
    places = {str(place) for tests in by_name.values() for test in tests for place in (test, *Path(test).parents)}
    own, shared = set[str](), list[str]()
    for names, tests in rows():
        for name in names:
            matching = [source for source in sources if is_end(source, name)]
            if not matching or ("*" not in name and len(matching) > 1):
                yield f"tests/README.md: {len(matching)} sources are called {name}: {', '.join(sorted(matching))}"
            if "*" in name:
                shared.append(name)
            else:
                own.update(matching)
        for name in tests:
            if (count := sum(is_end(place, name) for place in places)) != 1:
                yield f"tests/README.md: {count} tests are called {name}"
    for source in sorted(sources - own):
        same_name = by_name.get(source.rpartition("/")[2].lstrip("_"), [])
        found = {test: is_test_of(test, source) for test in same_name}
        if any(found.values()):
            continue
        if wrong := [test for test, about in found.items() if about is False]:
            yield f"{source}: {wrong[0]} has its name and does not use it; add a row to tests/README.md"
        elif not any(is_end(source, name) for name in shared):
            yield f"{source}: no test has its name; add a row to tests/README.md"


if __name__ == "__main__":
    sys.exit("\n".join(complaints()) or None)
