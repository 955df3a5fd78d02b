"""Reports: levels, comparisons, the page and the badge."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree
from html.parser import HTMLParser
from pathlib import Path

import kit_runs
import pytest

from backend_conformance.levels import Level
from backend_conformance.reports import badge, html, json, terminal
from backend_conformance.reports.compare import Comparison
from backend_conformance.result import Result, Summary
from backend_conformance.verdicts import Verdict

NAMES = {Level.BOOTS: "boot", Level.TRAINS: "train", Level.ASYNCHRONOUS: "async", Level.COMPLETE: "all"}


def summary(device: str = "one", **verdicts: Verdict) -> Summary:
    """Four checks, one of each level, that pass unless a verdict is given."""
    results = []
    for level, name in NAMES.items():
        verdict = verdicts.get(name, Verdict.PASS)
        message = "" if verdict is Verdict.PASS else f"<{name} & more>"
        results.append(Result(f"group.{name}", "group", level, verdict, message, "a < hook", f"group.md#{name}", 0.5))
    return Summary(device, "2.13.0", results)


@pytest.mark.parametrize(
    ("verdicts", "level"),
    [
        ({}, "complete"),
        ({"all": Verdict.MISSING}, "asynchronous"),
        ({"async": Verdict.VACUOUS}, "trains"),
        ({"train": Verdict.WRONG, "async": Verdict.MISSING}, "boots"),
        ({"boot": Verdict.CRASH}, "none"),
        ({"train": Verdict.STALE}, "boots"),
        ({"all": Verdict.DECLARED, "async": Verdict.NOT_APPLICABLE}, "complete"),
    ],
)
def test_a_level_is_reached_if_nothing_in_it_or_below_fails(verdicts: dict[str, Verdict], level: str) -> None:
    assert summary(**verdicts).level == level


def test_a_level_that_did_not_run_is_not_reached() -> None:
    ran = summary().results[:2]
    assert Summary("one", "2.13.0", ran, Level.TRAINS).level == "trains"
    assert Summary("one", "2.13.0", ran, Level.TRAINS, selected=True).level == ""


def test_a_file_of_results_keeps_them(tmp_path: Path) -> None:
    written = summary(train=Verdict.HANG)
    json.write(written, tmp_path / "file.json")
    assert json.read(tmp_path / "file.json") == written
    (tmp_path / "other.json").write_text("[1, 2]")
    with pytest.raises(ValueError, match=r"other\.json is not a results file"):
        json.read(tmp_path / "other.json")


def test_a_comparison_finds_regressions_and_repairs() -> None:
    before = summary(train=Verdict.MISSING, all=Verdict.DECLARED)
    after = summary(boot=Verdict.WRONG)
    comparison = Comparison.of(before, after)
    assert [now.id for _, now in comparison.regressions] == ["group.boot"]
    assert [now.id for _, now in comparison.repaired] == ["group.train"]
    assert [now.id for _, now in comparison.changed] == ["group.all"]
    assert "group.boot: pass -> wrong (<boot & more>)" in comparison.text()
    assert Comparison.of(after, after).text().endswith("All verdicts are the same.")


def test_a_new_check_that_fails_is_a_regression_and_a_lost_one_is_named() -> None:
    before = summary()
    after = dataclasses.replace(summary(all=Verdict.ERROR), results=summary(all=Verdict.ERROR).results[1:])
    before = dataclasses.replace(before, results=before.results[:3])
    comparison = Comparison.of(before, after)
    assert [(was, now.id) for was, now in comparison.regressions] == [(None, "group.all")]
    assert [was.id for was in comparison.gone] == ["group.boot"]


def test_cases_that_fail_alike_are_reported_once() -> None:
    result = summary(train=Verdict.MISSING).results[1]
    cases = [dataclasses.replace(result, id=f"group.family[{case}]") for case in ("a", "b", "c")]
    other = dataclasses.replace(result, id="group.family[d]", message="something else")
    printed = terminal.text(Summary("one", "2.13.0", [*cases, other]))
    assert printed.count("MISSING  ") == 2
    assert "and the same in 2 more: b, c" in printed


class Page(HTMLParser):
    """Checks that elements are closed in order, and collects the text of the cells."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[tuple[str, str]] = []
        self.links: list[str] = []
        self._class = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        if tag not in ("meta", "input"):
            self.open.append(tag)
        if tag == "td":
            self._class = found.get("class") or ""
        if tag == "a":
            self.links.append(found["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open and data.strip():
            self.cells.append((self._class, data))


def test_the_page_has_a_column_for_each_backend() -> None:
    text = html.page(
        [summary("one", train=Verdict.WRONG), summary("<two>", all=Verdict.NOT_APPLICABLE)], "https://here/"
    )
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert ("wrong", "wrong") in page.cells and ("wrong", "<train & more>") in page.cells
    assert ("not-applicable", "not applicable") in page.cells
    assert [kind for kind, _ in page.cells].count("pass") == 6
    assert page.links == [f"https://here/group.md#{name}" for name in NAMES.values()]
    assert "prefers-color-scheme: dark" in text and "<script" not in text and "src=" not in text


def test_a_check_that_a_backend_did_not_run_has_an_empty_cell() -> None:
    fewer = dataclasses.replace(summary("two"), results=summary("two").results[:1])
    page = Page()
    page.feed(html.page([summary("one"), fewer]))
    assert [text for kind, text in page.cells if kind == "absent"] == ["not run"] * 3


@pytest.mark.parametrize("verdicts", [{}, {"boot": Verdict.CRASH}])
def test_the_badge_shows_the_level(verdicts: dict[str, Verdict]) -> None:
    made = summary("a&b", **verdicts)
    root = xml.etree.ElementTree.fromstring(badge.svg(made))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["PyTorch conformance", made.level]


def test_commands_compare_and_join_files_of_results(tmp_path: Path) -> None:
    good, bad, page = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "page.html"
    json.write(summary("good"), good)
    json.write(summary("bad", train=Verdict.WRONG), bad)
    regressed = kit_runs.command("--compare", str(good), str(bad))
    assert regressed.returncode == 1 and "group.train: pass -> wrong" in regressed.stdout
    assert kit_runs.command("compare", str(bad), str(good)).returncode == 0
    assert kit_runs.command("compare", str(bad), str(page)).returncode == 2
    assert kit_runs.command("matrix", str(good), str(bad), "--html", str(page)).returncode == 0
    assert "<title>Conformance of good, bad</title>" in page.read_text()
    after = tmp_path / "after.json"
    json.write(summary("good"), after)
    assert kit_runs.command("matrix", *map(str, (good, bad, after)), "--html", str(page)).returncode == 0
    assert "<title>Conformance of good, bad, after</title>" in page.read_text()
