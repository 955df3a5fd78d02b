"""The decorator that makes a function a check."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from .levels import Level

Function = TypeVar("Function", bound=Callable[..., None])
Cases = Sequence[str] | Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Check:
    """A check, or a family of them: one for each of its cases."""

    group: str
    name: str
    level: Level
    hook: str
    needs: tuple[str, ...]
    alone: bool
    timeout: float
    cases: Cases | None
    function: Callable[..., None]

    @property
    def base(self) -> str:
        return f"{self.group}.{self.name}"

    @property
    def page(self) -> str:
        return f"{self.group}.md#{self.name}"

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def summary(self) -> str:
        return self.doc.partition("\n")[0]

    def ids(self) -> list[str]:
        if self.cases is None:
            return [self.base]
        cases = self.cases() if callable(self.cases) else self.cases
        return [f"{self.base}[{case}]" for case in cases]


CHECKS: dict[str, Check] = {}  # by `base`, in the order of their definition


def check(
    *,
    level: Level,
    hook: str,
    needs: Iterable[str] = (),
    alone: bool = False,
    timeout: float = 30.0,
    cases: Cases | None = None,
) -> Callable[[Function], Function]:
    """Registers a function of a `Device` (and a case, if there are `cases`) as a check. Its group is the file's name.

    Args:
        level: The level that includes it.
        hook: What the backend has to implement: a virtual function, an operator, a name of the device's module.
        needs: Capabilities that a device may lack by nature; a declaration file names them.
        alone: Runs in a process of its own, because it may leave the device unusable.
        timeout: Seconds after which it counts as a hang.
        cases: Names of cases, or a function that returns them; each makes a check of its own, `group.name[case]`.
    """

    def register(function: Function) -> Function:
        made = Check(
            group=function.__module__.rpartition(".")[2],
            name=function.__name__,
            level=level,
            hook=hook,
            needs=tuple(needs),
            alone=alone,
            timeout=timeout,
            cases=cases,
            function=function,
        )
        if made.base in CHECKS:
            raise ValueError(f"two checks have the id {made.base}")
        if not made.doc:
            raise ValueError(f"{made.base} has no docstring")
        CHECKS[made.base] = made
        return function

    return register
