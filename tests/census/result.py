"""What the census finds out about an entry."""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass
class Result:
    """How one entry did in one check with one dtype."""

    name: str
    check: str
    dtype: str
    status: str = "equal"  # equal, unequal, crashed, cpu (it fails there, or has no samples), excepted
    details: list[str] = field(default_factory=list)
    samples: int = 0
    backward: bool = False
    cpu_failures: int = 0
    waits: int = 0  # of the host, in the calls themselves
    waiting: dict[str, int] = field(default_factory=dict)  # waits by operator, where the same call was made again
    launches: dict[str, int] = field(default_factory=dict)

    def unequal(self, detail: str) -> None:
        self.status = "unequal"
        self.details.append(detail)


def report(results: list[Result], file: Path | None) -> list[Result]:
    """Writes all results to the file, if there is one, and prints those that are not equal, which it returns."""
    results.sort(key=lambda result: (result.name, result.dtype))
    if file:
        file.write_text(json.dumps([asdict(result) for result in results], indent=1))
    bad = [result for result in results if result.status in ("unequal", "crashed")]
    for result in bad:
        case = f"{result.name}, {result.dtype}" if result.dtype else result.name
        print(f"{case}: {result.status}", *result.details, sep="\n    ")
    return bad


def failure(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]} ({last.name})"
