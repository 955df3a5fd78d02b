"""What a report of the race detector says, and the line that a comment marks."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

BACKWARD = r"the backward pass of \w+"  # if several threads have called one, that is all that is known
_LINE = rf"(?:(?:{BACKWARD}, called by )?(?P<file{{0}}>\S+):(?P<line{{0}}>\d+) in \S+|an unknown line|{BACKWARD})"
_ACCESS = (
    r"  (?P<op{0}>\S+) (?P<verb{0}>wrote|writes|read|reads) "
    r"(?P<argument{0}>`[^`]*`|its (?:tensor \d+|input|output)|the result|result \d+) "
    r"\((?P<elements{0}>\d+) elements?, (?P<dtype{0}>\w+)(?P<some{0}>, some of them)?\) on "
    r"(?:the host, called by|stream (?P<stream{0}>\d+) of openreg:(?P<device{0}>\d+), "
    r"(?:in a graph that was captured by \S+:(?P<captured{0}>\d+) in \S+ and replayed|launched) by) " + _LINE
)
_REPORT = re.compile(
    r"openreg: unsynchronized accesses to the same memory:\n"
    + _ACCESS.format(1)
    + r";\n"
    + _ACCESS.format(2)
    + r"\.\n  The first element in common is \[(?P<element>[\d, ]+)\] of the second tensor, byte (?P<byte>\d+) of "
    r"a block of [^,\n]*?(?:, (?:allocated|received)(?: on stream \d+ of openreg:\d+)? by " + _LINE.format(3) + r")?"
    r"(?: and freed by " + _LINE.format(4) + r")?\.\n  (?P<suggested_fix>.*)\.",
    re.S,
)


@dataclass
class Access:
    """One of the two accesses."""

    op: str
    verb: str
    argument: str
    elements: int
    some: bool
    stream: tuple[int, int] | None  # device and stream; None: the host
    captured: int | None  # of a command in a graph: the line that captured it; `line` replayed it
    file: str | None
    line: int | None


@dataclass
class Report:
    """The parts of a report."""

    first: Access
    second: Access
    element: str
    byte: int
    allocated: int | None
    freed: int | None
    suggested_fix: str


def parse(message: str) -> Report:
    """The parts of a report, which must have the form that the documents describe."""
    found = _REPORT.match(message)
    assert found is not None, message

    def number(name: str) -> int | None:
        return int(found[name]) if found[name] else None

    accesses = [
        Access(
            op=found[f"op{i}"],
            verb=found[f"verb{i}"],
            argument=found[f"argument{i}"].strip("`"),
            elements=int(found[f"elements{i}"]),
            some=found[f"some{i}"] is not None,
            stream=(int(found[f"device{i}"]), int(found[f"stream{i}"])) if found[f"stream{i}"] else None,
            captured=number(f"captured{i}"),
            file=found[f"file{i}"],
            line=number(f"line{i}"),
        )
        for i in (1, 2)
    ]
    return Report(
        *accesses,
        element=found["element"],
        byte=int(found["byte"]),
        allocated=number("line3"),
        freed=number("line4"),
        suggested_fix=found["suggested_fix"],
    )


def marked(function: Callable[..., object], mark: str) -> int | None:
    """The line of the function whose comment has the mark; None if there is none."""
    lines, start = inspect.getsourcelines(function)
    for number, line in enumerate(lines, start):
        if mark in re.split(r", ", line.partition("  # ")[2].strip()):
            return number
    return None
