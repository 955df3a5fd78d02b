"""What a backend does not support, and why: a TOML file.

[lacks]  # capabilities that the device lacks by nature: checks that need them do not run
float64 = "the hardware computes in single precision"

[declared]  # checks, or patterns of them, that the backend refuses cleanly so far
"profiler.*" = "planned for the next release"
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .catalogue import Catalogue, Description, matches
from .result import Result
from .verdicts import Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]  # pytest depends on it before Python 3.11


class BadDeclarations(ValueError):
    """The file cannot be used."""


@dataclass(frozen=True)
class Declarations:
    lacks: dict[str, str] = field(default_factory=dict)  # reasons by capability
    declared: dict[str, str] = field(default_factory=dict)  # reasons by pattern

    def lacking(self, check: Description) -> str:
        """Why the check does not apply, or ""."""
        return next((f"{need}: {self.lacks[need]}" for need in check.needs if need in self.lacks), "")

    def judge(self, result: Result) -> Result:
        """The result in view of the declarations. Wrong results, crashes and hangs are never excused."""
        reason = next((why for pattern, why in self.declared.items() if matches(pattern, result.id)), "")
        if not reason:
            return result
        if result.verdict is Verdict.MISSING:
            return dataclasses.replace(result, verdict=Verdict.DECLARED, message=f"{reason} ({result.message})")
        if result.verdict is Verdict.PASS:
            message = f"passes, but is declared unsupported: {reason}"
            return dataclasses.replace(result, verdict=Verdict.STALE, message=message)
        return result

    def refuse_unknown(self, catalogue: Catalogue) -> None:
        """Raises BadDeclarations if an entry concerns no check of the kit."""
        unknown = [pattern for pattern in self.declared if not catalogue.select([pattern])]
        if unknown:
            raise BadDeclarations(f"these declarations name no check: {', '.join(unknown)}")
        unknown = sorted(set(self.lacks) - catalogue.capabilities)
        if unknown:
            known = ", ".join(sorted(catalogue.capabilities))
            raise BadDeclarations(f"no check needs the capability {', '.join(unknown)} (expected {known})")


def read(path: Path) -> Declarations:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadDeclarations(f"{path}: {error}") from error
    unknown = sorted(set(content) - {"lacks", "declared"})
    if unknown:
        raise BadDeclarations(f"{path}: unknown table {', '.join(unknown)} (expected lacks, declared)")
    return Declarations(_reasons(content, "lacks", path), _reasons(content, "declared", path))


def _reasons(content: dict[str, Any], table: str, path: Path) -> dict[str, str]:
    entries = content.get(table, {})
    if not isinstance(entries, dict) or not all(isinstance(why, str) and why.strip() for why in entries.values()):
        raise BadDeclarations(f'{path}: [{table}] expects lines of the form name = "reason", with quotes around both')
    return entries
