"""What the census finds out about an entry."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field


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


def failure(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:500]} ({last.name})"
