"""One run of the kit: which checks, on which device, with which declarations. The command line and pytest share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import catalogue, declarations, groups
from .catalogue import Catalogue, Description
from .declarations import Declarations
from .levels import Level
from .result import Result, Summary
from .runner import Runner
from .verdicts import Verdict


class NothingToRun(Exception):
    """There is no check to run, or not all could be listed."""


@dataclass
class Session:
    device: str
    setup: str = ""
    patterns: Sequence[str] = ()
    level: Level = Level.COMPLETE
    declarations_file: Path | None = None
    workers: int = 1
    patience: float = 1.0
    folder: Path = groups.CHECKS_FOLDER
    catalogue: Catalogue = field(init=False)
    declarations: Declarations = field(init=False)
    checks: list[Description] = field(init=False)

    def __post_init__(self) -> None:
        """Raises NothingToRun or BadDeclarations."""
        self.declarations = declarations.read(self.declarations_file) if self.declarations_file else Declarations()
        self.catalogue = catalogue.load(self.folder)
        for group, message in self.catalogue.broken.items():
            raise NothingToRun(f"the group {group} cannot be imported:\n{message}")
        self.declarations.refuse_unknown(self.catalogue)
        for pattern in self.patterns:
            if not self.catalogue.select([pattern]):
                raise NothingToRun(f"no check matches {pattern}; the command `list` prints all ids")
        self.checks = self.catalogue.select(self.patterns, self.level)
        if not self.checks:
            raise NothingToRun(f"no check of the level {self.level.label} or below matches")

    def run(self, report: Callable[[Result], None]) -> Summary:
        """Runs the checks, and gives each result to `report` as soon as it is known. Raises CannotStart."""
        results: list[Result] = []

        def take(result: Result) -> None:
            judged = self.declarations.judge(result)
            results.append(judged)
            report(judged)

        runner = Runner(self.device, self.setup, self.folder, self.workers, self.patience, report=take)
        runner.run(self.applicable(self.checks, take))
        return self.summary(results, runner.torch)

    def applicable(self, checks: Sequence[Description], report: Callable[[Result], None]) -> list[Description]:
        """The checks that can run; the others get their result."""
        possible = []
        for each in checks:
            reason = self.declarations.lacking(each)
            if reason:
                report(Result.of(each, Verdict.NOT_APPLICABLE, reason))
            else:
                possible.append(each)
        return possible

    def summary(self, results: Sequence[Result], torch: str) -> Summary:
        order = {each.id: number for number, each in enumerate(self.checks)}
        ordered = sorted(results, key=lambda each: order.get(each.id, len(order)))
        return Summary(self.device, torch, ordered, self.level, selected=bool(self.patterns))

    def command(self) -> list[str]:
        """Runs the kit on this device; ids may follow."""
        command = ["python", "-m", "backend_conformance", "--device", self.device]
        if self.setup:
            command += ["--setup", self.setup]
        if self.declarations_file:
            command += ["--declarations", str(self.declarations_file)]
        if self.folder != groups.CHECKS_FOLDER:
            command += ["--folder", str(self.folder)]
        return command
