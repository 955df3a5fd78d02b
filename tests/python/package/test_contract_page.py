"""docs/contract.md: what scripts/contract.py writes from the conformance kit, the sources and their tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from modules import load

ROOT = Path(__file__).parents[3]
contract = load("scripts/contract.py")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the files that the page is made of."""
    shutil.copytree(ROOT / contract.CHECKS, tmp_path / contract.CHECKS)
    for interface in contract.INTERFACES:
        for file in (*interface.sources, *interface.cpp_tests):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_the_page_is_what_the_script_writes():
    page = (ROOT / "docs/contract.md").read_text()
    assert page == contract.page(), "run: python scripts/contract.py > docs/contract.md"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("cpp/backend/guard.cpp", "bool queryStream(", "bool queryStreams("),
        (f"{contract.CHECKS}/guard.py", "def exchange_returns_the_device_before", "def exchange_returns_it"),
        (f"{contract.CHECKS}/guard.py", "Exchanging the current device returns", "An exchange returns"),
        (f"{contract.CHECKS}/streams.py", "DeviceGuardImplInterface::getStream", "DeviceGuardImplInterface::getDevice"),
        ("tests/cpp/backend/guard_test.cpp", "CapabilityHasAllTypes", "CapabilityIsWhole"),
    ],
)
def test_a_change_of_what_it_is_made_of_changes_the_page(tree, file, old, new):
    page = (ROOT / "docs/contract.md").read_text()
    assert contract.page(tree) == page
    replace(tree / file, old, new)
    assert contract.page(tree) != page


def test_functions_that_checks_name_are_those_of_the_classes():
    functions = {
        of_class: set(contract.functions(ROOT, interface))
        for interface in contract.INTERFACES
        for of_class in interface.classes
    }
    named = {each for check in contract.checks(ROOT) for each in check.functions if each[0] in functions}
    assert len(named) > 50
    assert {(of_class, name) for of_class, name in named if name not in functions[of_class]} == {
        ("GeneratorImpl", "mutex_")  # a member
    }


def test_python_tests_are_where_the_page_says():
    for interface in contract.INTERFACES:
        assert list((ROOT / interface.python_tests).glob("test_*.py"))
