"""Results as text: counts for each level, then each failure with what to do about it."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence

from ..levels import Level
from ..result import Result, Summary
from ..verdicts import Verdict

_OUTPUT_LINES = 12


def text(summary: Summary, command: Sequence[str] = (), level: Level = Level.COMPLETE) -> str:
    """The report. `command` runs the kit as this run did, without a selection of checks."""
    lines = [""]
    for failure in summary.failures(level):
        lines += _failure(failure, command)
    lines += _counts(summary, level)
    if summary.selected:
        lines.append("Only some checks ran, so no level is stated.")
    else:
        lines.append(f"{summary.device} on torch {summary.torch} reaches the level: {summary.level}")
    return "\n".join(lines)


def _failure(failure: Result, command: Sequence[str]) -> list[str]:
    lines = [f"{failure.verdict.value.upper()}  {failure.id}"]
    lines += textwrap.indent(failure.message, "    ").splitlines()
    if failure.verdict in (Verdict.CRASH, Verdict.HANG, Verdict.ERROR) and failure.output:
        printed = failure.output.splitlines()
        if len(printed) > _OUTPUT_LINES:
            printed = ["...", *printed[-_OUTPUT_LINES:]]
        lines += [f"    | {line}" for line in printed]
    lines += [f"    implement: {failure.hook}", f"    read:      {failure.page}"]
    if command:
        lines.append(f"    run alone: {shlex.join([*command, failure.id])}")
    return [*lines, ""]


def _counts(summary: Summary, level: Level) -> list[str]:
    lines = []
    for each in Level:
        if each > level:
            break
        counts = Counter(result.verdict for result in summary.results if result.level == each)
        if not counts:
            continue
        total = sum(counts.values())
        others = "".join(
            f", {counts[verdict]} {verdict.value}"
            for verdict in Verdict
            if verdict in counts and verdict is not Verdict.PASS
        )
        lines.append(f"{each.label:13} {counts[Verdict.PASS]} of {total} pass{others}")
    return lines
