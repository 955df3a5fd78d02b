"""scripts/check_phrases.py: which phrases it refuses, where it looks for them, and that the project has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from modules import load

ROOT = Path(__file__).resolve().parents[3]
checker = load(ROOT / "scripts/check_phrases.py")


def complaints(tmp_path: Path, path: str, text: str) -> list[str]:
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    return list(checker.complaints(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "# Faults on purpose",
        "Two accesses have no order.",
        "A consumer that lacks\nan order",
        "shows the missing order",
        "is no order",
        "Hidden waits",
        "an operator that makes the host wait",
        "**Mended**, it waits",
        "A device in its own process",
        'Programs that say "cuda"',
        "without luck",
        "The program is written so.",
        "a detector of races",
    ],
)
def test_refuses(tmp_path, text):
    (complaint,) = complaints(tmp_path, "docs/page.md", text)
    assert complaint.startswith('docs/page.md:1: "')


@pytest.mark.parametrize(
    "text",
    [
        "in the order of the capture",
        "commands run in order",
        "recommended",
        "the host waits",
        "each in its own process",
        "a setting of the same name",
        "```console\nopenreg: two accesses to the same memory have no order:\n```",
    ],
)
def test_accepts(tmp_path, text):
    assert complaints(tmp_path, "docs/page.md", text) == []


def test_looks_at_the_strings_of_python(tmp_path):
    source = (
        '"""Faults on purpose."""\n'
        "def f():\n"
        '    """It has\n'
        '    no order."""\n'
        '    raise RuntimeError(f"{f} have "\n'
        '                       "no order")\n'
        'add(help="hidden " "waits")  # on purpose\n'
        'pairs = {"hidden": "waits"}\n'
    )
    lines = [complaint.split(":")[1] for complaint in complaints(tmp_path, "python/package/module.py", source)]
    assert lines == ["1", "3", "5", "7"]


@pytest.mark.parametrize("folder", ["cpp/runtime", "packages/kit/src/kit/project"])
def test_looks_at_the_strings_of_cpp(tmp_path, folder):
    source = (
        "// on purpose\n"
        'throw Error("a hidden "  // a comment\n'
        '            "wait");\n'
        "/* mended */ const char quote = '\"';\n"
        'print("openreg:\\nhave no \\"order\\", no order");\n'
        'print(R"(hidden\nwaits)");\n'
        'pair("hidden", "waits", 10\'000);\n'
        'print("the hidden waits\\n");\n'
    )
    lines = [complaint.split(":")[1] for complaint in complaints(tmp_path, f"{folder}/source.cpp", source)]
    assert lines == ["2", "6", "9"]


def test_says_the_line_after_a_block_of_code_and_the_term(tmp_path):
    (complaint,) = complaints(tmp_path, "docs/page.md", "```\nhave no order\n```\n\nhave no\norder\n")
    assert complaint == 'docs/page.md:5: "have no order" is not the usual term (unsynchronized)'


def test_looks_at_the_scripts(tmp_path):
    assert complaints(tmp_path, "scripts/test", 'say "Programs that say cuda"\n')


def test_titles_of_the_site_count(tmp_path):
    assert complaints(tmp_path, "mkdocs.yml", "nav:\n  - Faults on purpose: faults.md\n")


def test_the_project_has_none():
    assert list(checker.complaints(ROOT)) == []
