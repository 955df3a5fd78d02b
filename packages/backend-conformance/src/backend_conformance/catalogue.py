"""The list of checks, as the parent knows it: made in a process of its own, because the checks import torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import groups, process
from .levels import Level


@dataclass(frozen=True)
class Description:
    """A check, without its function."""

    id: str
    group: str
    level: Level
    hook: str
    page: str
    needs: tuple[str, ...] = ()
    alone: bool = False
    timeout: float = 30.0
    doc: str = ""

    @property
    def summary(self) -> str:
        return self.doc.partition("\n")[0]

    @property
    def base(self) -> str:
        """The id without its case."""
        return self.id.partition("[")[0]


@dataclass
class Catalogue:
    checks: list[Description] = field(default_factory=list)
    introductions: dict[str, str] = field(default_factory=dict)  # by group
    broken: dict[str, str] = field(default_factory=dict)  # groups that could not be imported, and why

    def select(self, patterns: Sequence[str] = (), level: Level = Level.COMPLETE) -> list[Description]:
        """The checks of these levels; if there are patterns, those that one of them names. See `matches`."""
        return [
            each
            for each in self.checks
            if each.level <= level and (not patterns or any(matches(pattern, each.id) for pattern in patterns))
        ]

    @property
    def capabilities(self) -> set[str]:
        return {need for each in self.checks for need in each.needs}


def matches(pattern: str, identifier: str) -> bool:
    """Whether a pattern is a check's id, its id without the case, or its group; `*` and `?` are wildcards."""
    expression = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    base = identifier.partition("[")[0]
    names: Iterable[str] = (identifier, base, base.partition(".")[0])
    return any(re.fullmatch(expression, name) for name in names)


def load(folder: Path = groups.CHECKS_FOLDER) -> Catalogue:
    """Asks a worker for all checks of a folder. No backend is loaded there."""
    lines, ending = process.collect({"task": "list", "folder": str(folder)}, autoload=False)
    made = Catalogue()
    for line in lines:
        if "broken" in line:
            made.broken[line["broken"]] = line["message"]
        elif "group" in line:
            made.introductions[line["group"]] = line["introduction"]
            made.checks += [_description(each) for each in line["checks"]]
    if not any("done" in line for line in lines):
        raise RuntimeError(f"the checks could not be listed: {ending}")
    return made


def _description(fields: dict[str, Any]) -> Description:
    return Description(**{**fields, "level": Level.parse(fields["level"]), "needs": tuple(fields["needs"])})
