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
    for each in summary.failures():
        lines += failure(each, command)
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


def counts(summary: Summary) -> list[str]:
    """How many checks of each level pass, and what came of the others."""
    lines = []
    for level in Level:
        found = Counter(each.verdict for each in summary.results if each.level == level)
        if found:
            others = [each for each in Verdict if each in found and each is not Verdict.PASS]
            listed = "".join(f", {found[each]} {each.value}" for each in others)
            lines.append(f"{level.label:13} {found[Verdict.PASS]} of {sum(found.values())} pass{listed}")
    return lines
