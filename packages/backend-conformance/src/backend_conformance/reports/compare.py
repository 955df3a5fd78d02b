"""Two runs, compared check by check."""

from __future__ import annotations

from dataclasses import dataclass

from ..result import Result, Summary


@dataclass(frozen=True)
class Comparison:
    before: Summary
    after: Summary
    regressions: list[tuple[Result | None, Result]]  # what fails now, and did not or is new
    repaired: list[tuple[Result, Result]]
    changed: list[tuple[Result, Result]]  # another verdict, but failing or not as before
    gone: list[Result]  # ran before, and not now

    @classmethod
    def of(cls, before: Summary, after: Summary) -> Comparison:
        old = {each.id: each for each in before.results}
        new = {each.id: each for each in after.results}
        pairs = [(old[each.id], each) for each in after.results if each.id in old]
        regressions: list[tuple[Result | None, Result]] = [
            (was, now) for was, now in pairs if now.verdict.fails and not was.verdict.fails
        ]
        regressions += [(None, now) for name, now in new.items() if name not in old and now.verdict.fails]
        return cls(
            before,
            after,
            regressions,
            [(was, now) for was, now in pairs if was.verdict.fails and not now.verdict.fails],
            [
                (was, now)
                for was, now in pairs
                if was.verdict is not now.verdict and was.verdict.fails is now.verdict.fails
            ],
            [was for name, was in old.items() if name not in new],
        )

    def text(self) -> str:
        lines = [f"{_title(self.before)}  ->  {_title(self.after)}"]
        for title, pairs in (
            ("Fails now", self.regressions),
            ("No longer fails", self.repaired),
            ("Another verdict", self.changed),
        ):
            if pairs:
                lines += ["", f"{title}:"]
                lines += [f"  {now.id}: {_verdict(was)} -> {now.verdict.value}{_why(now)}" for was, now in pairs]
        if self.gone:
            lines += ["", "Did not run again:"]
            lines += [f"  {was.id}: {was.verdict.value}" for was in self.gone]
        if len(lines) == 1:
            lines.append("All verdicts are the same.")
        return "\n".join(lines)


def _title(summary: Summary) -> str:
    return f"{summary.device} on torch {summary.torch} ({summary.level or 'some checks'})"


def _verdict(was: Result | None) -> str:
    return was.verdict.value if was else "new"


def _why(now: Result) -> str:
    first = now.message.partition("\n")[0]
    return f" ({first})" if now.verdict.fails and first else ""
