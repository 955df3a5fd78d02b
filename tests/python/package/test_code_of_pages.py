"""The code of all pages of the documentation runs, and prints what the pages say it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from children import child_environment
from documents import ROOT, Block, Page, pages, pattern_of

PAGES = pages()
RUN_HERE = [page for page in PAGES if page.programs and not page.run_by]
RUN_BY_OTHERS = [page for page in PAGES if page.run_by]
LANGUAGES = {"", "console", "cpp", "diff", "python", "sh", "text", "toml", "yaml"}


def path_of(page: Page) -> str:
    return page.path


def place_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, dict[str, str]]]:
    """What came of each block, by page and line."""
    report = tmp_path_factory.mktemp("pages") / "report"
    program = Path(__file__).parents[1] / "run_pages.py"
    environment = {name: None for name in os.environ if name.startswith("TORCH_OPENREG_")}  # the defaults, as readers
    subprocess.run(
        [sys.executable, program, report, *map(path_of, RUN_HERE)],
        check=True,
        timeout=240,
        env=child_environment([], environment),
    )
    found: dict[str, dict[int, dict[str, str]]] = {}
    for line in report.read_text().splitlines():
        result = json.loads(line)
        found.setdefault(result["page"], {})[result["line"]] = result
    return found


@pytest.mark.parametrize("page", RUN_HERE, ids=path_of)
def test_the_code_of_the_page_runs(page, results):
    of_page = results.get(page.path, {})
    for result in of_page.values():
        assert not result["error"], result["error"]
    assert set(of_page) == {block.line for block in page.programs if not block.reason}
    for block in page.programs:
        if block.prints is not None:
            printed = of_page[block.line]["printed"].strip()
            assert re.fullmatch(pattern_of(block.prints), printed, re.S), f"{place_of(block)} prints\n{printed}"


@pytest.mark.parametrize("page", RUN_BY_OTHERS, ids=path_of)
def test_the_test_that_a_page_names_runs_it(page):
    assert Path(page.path).name in (ROOT / page.run_by).read_text()


def test_blocks_name_a_language_that_is_checked():
    assert {block.language for page in PAGES for block in page.blocks} <= LANGUAGES


@pytest.mark.parametrize(
    "block", [block for page in PAGES for block in page.blocks if block.language == "sh"], ids=place_of
)
def test_commands_are_those_of_a_shell(block):
    subprocess.run(["bash", "-n"], input=block.code, text=True, check=True)
    for script in re.findall(r"(?<![\w/])((?:scripts|examples|benchmarks)/[\w.]+)", block.code):
        assert (ROOT / script).is_file(), script


@pytest.mark.parametrize(
    "block", [block for page in PAGES for block in page.blocks if block.language == "toml"], ids=place_of
)
def test_toml_is_read(block):
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    assert isinstance(tomllib.loads(block.code), dict)


@pytest.mark.parametrize(
    "block", [block for page in PAGES for block in page.blocks if block.language == "yaml"], ids=place_of
)
def test_workflows_are_yaml(block):
    assert yaml.safe_load(block.code)
