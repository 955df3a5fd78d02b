"""Declarations: what a backend does not support, and what they may not excuse."""

from __future__ import annotations

from pathlib import Path

import kit_runs
import pytest

from backend_conformance import declarations
from backend_conformance.declarations import BadDeclarations
from backend_conformance.result import Result
from backend_conformance.verdicts import Verdict

FILE = """
[lacks]
several_devices = "one board"

[declared]
"behaved.says_missing" = "planned"
"behaved.passes" = "believed to be missing"
"behaved.says_wrong" = "known"
"behaved.raises" = "known"
"behaved.family" = "only one of two"
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    file = tmp_path_factory.mktemp("declarations") / "declarations.toml"
    file.write_text(FILE)
    return kit_runs.run("behaved", declarations_file=file)[1]


@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("says_missing", Verdict.DECLARED, "planned (torch.nothing.at_all)"),
        ("passes", Verdict.STALE, "passes, but is declared unsupported: believed to be missing"),
        ("says_wrong", Verdict.WRONG, "five instead of four"),
        ("raises", Verdict.ERROR, "KeyError"),
        ("family[one]", Verdict.STALE, "passes, but is declared unsupported: only one of two"),
        ("family[two]", Verdict.WRONG, "case two"),
        ("says_not_applicable", Verdict.NOT_APPLICABLE, "several_devices: one board"),
        ("lacks_a_kernel", Verdict.MISSING, "NotImplementedError"),
    ],
)
def test_a_declaration_excuses_a_clean_refusal_only(
    judged: dict[str, Result], name: str, verdict: Verdict, message: str
) -> None:
    result = judged[f"behaved.{name}"]
    assert result.verdict is verdict
    assert result.message.startswith(message)


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.CRASH, Verdict.HANG, Verdict.VACUOUS, Verdict.ERROR])
def test_failures_of_other_kinds_are_never_excused(judged: dict[str, Result], verdict: Verdict) -> None:
    result = judged["behaved.says_wrong"].__class__("a.b", "a", judged["behaved.raises"].level, verdict, "m", "h", "p")
    assert declarations.Declarations(declared={"*": "all"}).judge(result) == result


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[declared]\n"behaved.no_such_check" = "why"', "name no check: behaved.no_such_check"),
        ('[lacks]\nwings = "why"', "no check needs the capability wings"),
        ('[unsupported]\n"behaved.passes" = "why"', "unknown table unsupported"),
        ('[declared]\n"behaved.passes" = ""', "name = "),
        ("[declared]\n[", "TOML|toml|Expected|Invalid"),
    ],
)
def test_a_file_that_says_nothing_is_refused(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "declarations.toml"
    file.write_text(content)
    with pytest.raises(BadDeclarations, match=message):
        kit_runs.run("behaved", declarations_file=file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadDeclarations, match="no_such_file"):
        declarations.read(tmp_path / "no_such_file")
