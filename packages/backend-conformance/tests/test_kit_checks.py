"""The checks of the kit itself: each has a level, an explanation and a page, and none knows a particular backend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from backend_conformance import catalogue, groups
from backend_conformance.catalogue import Catalogue
from backend_conformance.commands.pages import pages
from backend_conformance.levels import Level


@pytest.fixture(scope="module")
def kit() -> Catalogue:
    return catalogue.load()


def test_all_groups_can_be_imported_without_a_backend(kit: Catalogue) -> None:
    assert kit.broken == {}
    assert len({each.base for each in kit.checks}) >= 250


def test_each_check_is_explained(kit: Catalogue) -> None:
    for each in kit.checks:
        assert each.summary.endswith((".", "?")), f"{each.id}: the first line is no sentence: {each.summary!r}"
        assert each.hook, f"{each.id} names nothing to implement"
        assert each.page == f"{each.group}.md#{each.base.partition('.')[2]}"


def test_ids_are_unique_and_fit_on_a_command_line(kit: Catalogue) -> None:
    identifiers = [each.id for each in kit.checks]
    assert len(set(identifiers)) == len(identifiers)
    assert [each for each in identifiers if not re.fullmatch(r"[a-z0-9_]+\.[a-z0-9_]+(\[[^\]\n*?]+\])?", each)] == []


def test_each_level_has_checks(kit: Catalogue) -> None:
    for level in Level:
        assert any(each.level == level for each in kit.checks), f"no check of the level {level.label}"


def test_pages_show_all_that_is_written(kit: Catalogue) -> None:
    for name, page in pages(kit).items():
        prose = re.sub(r"^```.*?^```$|`[^`]*`", "", page, flags=re.M | re.S)
        assert "<" not in prose, f"{name}: Markdown hides what looks like a tag: {prose[prose.index('<') :][:60]}"


def test_no_check_knows_a_particular_backend() -> None:
    names = re.compile(r"openreg|\bcuda\.|torch\.(cuda|xpu|npu|mps)\b", re.I)
    sources = [*groups.CHECKS_FOLDER.glob("*.py"), *Path(groups.__file__).parent.glob("*.py")]
    assert len(sources) > 30
    for source in sources:
        code = re.sub(r'""".*?"""|#.*', "", source.read_text(), flags=re.S)
        found = names.search(code)
        assert found is None, f"{source.name} names {found[0]}"
