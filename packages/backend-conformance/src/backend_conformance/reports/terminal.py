"""Results as text: each failure with what to do about it, then counts for each level."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence

from ..levels import Level
from ..result import Result, Summary
from ..verdicts import Verdict

_OUTPUT_LINES = 12
_WITH_OUTPUT = (Verdict.CRASH, Verdict.HANG, Verdict.ERROR)


def text(summary: Summary, command: Sequence[str] = ()) -> str:
    """The report. `command` runs the kit as this run did, without a selection of checks."""
    lines = [""]
    for first, others in _families(summary.failures()):
        lines += failure(first, command)
        if others:
            lines[-1:] = [f"    and the same in {len(others)} more: {_cases(others)}", ""]
    lines += counts(summary)
    if summary.selected:
        lines.append("Only some checks ran, so no level is stated.")
    else:
        lines.append(f"{summary.device} on torch {summary.torch} reaches the level: {summary.level}")
    return "\n".join(lines)


def failure(result: Result, command: Sequence[str] = ()) -> list[str]:
    """What a check found, what to implement, where to read about it, and how to run it alone."""
    lines = [f"{result.verdict.value.upper()}  {result.id}"]
    lines += textwrap.indent(result.message, "    ").splitlines()
    if result.verdict in _WITH_OUTPUT and result.output:
        printed = result.output.splitlines()
        if len(printed) > _OUTPUT_LINES:
            printed = ["...", *printed[-_OUTPUT_LINES:]]
        lines += [f"    | {line}" for line in printed]
    lines += [f"    implement: {result.hook}", f"    read:      {result.page}"]
    if command:
        lines.append(f"    run alone: {shlex.join([*command, result.id])}")
    return [*lines, ""]


def _families(failures: Sequence[Result]) -> list[tuple[Result, list[Result]]]:
    """Cases of one check that fail in the same way, together."""
    families: dict[tuple[str, Verdict, str], list[Result]] = {}
    for each in failures:
        families.setdefault((each.id.partition("[")[0], each.verdict, each.message), []).append(each)
    return [(first, others) for first, *others in families.values()]


def _cases(results: Sequence[Result]) -> str:
    return ", ".join(each.id.partition("[")[2].rstrip("]") for each in results)


def counts(summary: Summary) -> list[str]:
    """How many checks of each level pass, and the outcomes of the others."""
    lines = []
    for level in Level:
        found = Counter(each.verdict for each in summary.results if each.level == level)
        if found:
            others = [each for each in Verdict if each in found and each is not Verdict.PASS]
            listed = "".join(f", {found[each]} {each.value}" for each in others)
            lines.append(f"{level.label:13} {found[Verdict.PASS]} of {sum(found.values())} pass{listed}")
    return lines
