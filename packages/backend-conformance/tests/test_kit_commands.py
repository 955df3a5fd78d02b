"""The commands: what they print, and their exit status."""

from __future__ import annotations

import json
from pathlib import Path

import kit_runs
import pytest

ON_CPU = ("--device", "cpu", "--folder", str(kit_runs.CHECKS))


def test_a_run_fails_if_a_check_fails(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    ended = kit_runs.command(*ON_CPU, "behaved", "deadly.exits", "--json", str(file))
    assert ended.returncode == 1
    assert "WRONG  behaved.says_wrong\n    five instead of four\n    implement: values\n" in ended.stdout
    assert "read:      behaved.md#says_wrong\n" in ended.stdout
    alone = f"python -m backend_conformance --device cpu --folder {kit_runs.CHECKS}"
    assert f"run alone: {alone} behaved.says_wrong\n" in ended.stdout
    assert f"run alone: {alone} 'behaved.family[two]'\n" in ended.stdout
    assert "trains        0 of 5 pass, 3 wrong, 2 missing" in ended.stdout
    assert "no level is stated" in ended.stdout
    results = json.loads(file.read_text())
    assert (results["device"], results["level"]) == ("cpu", "")
    assert results["torch"].startswith("2.")
    fields = {"id", "group", "level", "verdict", "message", "hook", "page", "seconds"}
    assert all(fields <= set(each) for each in results["checks"])
    places = [ended.stdout.index(f"{verdict}  ") for verdict in ("WRONG", "CRASH", "ERROR", "MISSING", "VACUOUS")]
    assert places == sorted(places), "the worst comes first"


def test_a_run_of_a_level_counts_that_level_and_those_below() -> None:
    ended = kit_runs.command(*ON_CPU, "behaved", "--level", "boots")
    assert ended.returncode == 0, ended.stdout
    assert "behaved.passes" in ended.stderr and "behaved.says_wrong" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("behaved.no_such_check",), "no check matches behaved.no_such_check"),
        (("behaved", "--setup", "no_such_backend"), "the backend cannot be loaded:"),
        (("behaved", "--level", "perfect"), "unknown level 'perfect' (expected boots, trains, asynchronous, complete)"),
        (("behaved", "--declarations", "no_such_file"), "no_such_file"),
    ],
)
def test_a_run_without_checks_is_no_success(arguments: tuple[str, ...], message: str) -> None:
    ended = kit_runs.command(*ON_CPU, *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr or "no_such_backend" in message or "loaded" in message


def test_a_group_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text('"""Broken."""\nimport no_such_module\n')
    ended = kit_runs.command("--device", "cpu", "--folder", str(tmp_path))
    assert ended.returncode == 2
    assert "the group broken cannot be imported" in ended.stderr and "no_such_module" in ended.stderr


def test_two_checks_cannot_have_one_id(tmp_path: Path) -> None:
    check = '@check(level=Level.BOOTS, hook="")\ndef same(device):\n    """The same."""\n\n\n'
    (tmp_path / "twice.py").write_text(
        f'"""Twice."""\nfrom backend_conformance import Level, check\n\n\n{check}{check}'
    )
    ended = kit_runs.command("--device", "cpu", "--folder", str(tmp_path))
    assert ended.returncode == 2
    assert "two checks have the id twice.same" in ended.stderr


def test_list_and_explain_describe_the_checks() -> None:
    listed = kit_runs.command("list", "behaved", "--folder", str(kit_runs.CHECKS)).stdout
    assert "boots         behaved.passes" in listed and "11 checks" in listed
    explained = kit_runs.command("explain", "behaved.passes", "--folder", str(kit_runs.CHECKS)).stdout
    assert explained.startswith("behaved.passes  (level: boots)\n\nPasses.\n\nA second paragraph.\n")
    assert kit_runs.command("explain", "no_such_check", "--folder", str(kit_runs.CHECKS)).returncode == 2


def test_pages_explain_each_group(tmp_path: Path) -> None:
    assert kit_runs.command("pages", str(tmp_path), "--folder", str(kit_runs.CHECKS)).returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"behaved.md", "deadly.md", "endings.md", "index.md"}
    page = (tmp_path / "behaved.md").read_text()
    assert page.startswith("# Checks that end in each of the orderly ways\n\nNone of them needs a backend.\n")
    assert "\n## passes\n\nLevel: boots. Implement: `nothing`.\n\nPasses.\n" in page
    assert page.count("## family") == 1 and "Cases: 2." in page
    assert "| [behaved](behaved.md) | 11 |" in (tmp_path / "index.md").read_text()
