"""The result of a check, and what all of them say about a backend."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .catalogue import Description
from .levels import Level
from .verdicts import Verdict


@dataclass(frozen=True)
class Result:
    id: str
    group: str
    level: Level
    verdict: Verdict
    message: str
    hook: str
    page: str
    seconds: float = 0.0
    output: str = ""  # the end of what the check printed, if it failed

    @classmethod
    def of(
        cls, check: Description, verdict: Verdict, message: str = "", seconds: float = 0.0, output: str = ""
    ) -> Result:
        return cls(check.id, check.group, check.level, verdict, message, check.hook, check.page, seconds, output)

    def to_json(self) -> dict[str, Any]:
        shown = {"level": self.level.label, "verdict": self.verdict.value, "seconds": round(self.seconds, 3)}
        fields = dataclasses.asdict(self) | shown
        return fields if self.output else {name: value for name, value in fields.items() if name != "output"}

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Result:
        parsed = {**fields, "level": Level.parse(fields["level"]), "verdict": Verdict(fields["verdict"])}
        return cls(**parsed)


@dataclass(frozen=True)
class Summary:
    """The results of one backend."""

    device: str
    torch: str
    results: list[Result]
    highest: Level = Level.COMPLETE  # of the checks that ran
    selected: bool = False  # only some checks ran, so that no level can be stated

    @property
    def level(self) -> str:
        """The highest level of which, and below which, nothing fails; "none", or "" if only some checks ran."""
        return "" if self.selected else level_reached(self.results, self.highest)

    def failures(self) -> list[Result]:
        """What fails: wrong results first, then in the order of the levels."""
        order = list(Verdict)
        failed = [each for each in self.results if each.verdict.fails]
        return sorted(failed, key=lambda each: (order.index(each.verdict), each.level))

    def to_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "level": self.level,
            "torch": self.torch,
            "highest": self.highest.label,
            "checks": [each.to_json() for each in self.results],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Summary:
        results = [Result.from_json(each) for each in fields["checks"]]
        highest = Level.parse(fields["highest"])
        return cls(fields["device"], fields["torch"], results, highest, selected=fields["level"] == "")


def level_reached(results: Iterable[Result], highest: Level = Level.COMPLETE) -> str:
    failed = {each.level for each in results if each.verdict.fails}
    reached = "none"
    for level in Level:
        if level in failed or level > highest:
            break
        reached = level.label
    return reached
