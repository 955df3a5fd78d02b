"""The outcome of a check, and how an exception becomes a verdict."""

from __future__ import annotations

import enum
import re
import sys
import traceback
from pathlib import Path
from typing import NoReturn


class Verdict(str, enum.Enum):
    WRONG = "wrong"  # a result differs from what PyTorch expects
    CRASH = "crash"  # the process died
    HANG = "hang"  # the process was still busy at the limit of time
    ERROR = "error"  # an exception that does not say that something is unsupported
    MISSING = "missing"  # a clean refusal: not implemented
    VACUOUS = "vacuous"  # the evidence would not distinguish a stub
    STALE = "stale"  # declared unsupported, but it passes
    DECLARED = "declared"  # declared unsupported, and cleanly refused
    NOT_APPLICABLE = "not applicable"
    PASS = "pass"

    @property
    def fails(self) -> bool:
        return self not in (Verdict.PASS, Verdict.DECLARED, Verdict.NOT_APPLICABLE)


class Outcome(Exception):
    """What a check raises to state its verdict."""

    verdict: Verdict


class Wrong(Outcome):
    verdict = Verdict.WRONG


class Missing(Outcome):
    verdict = Verdict.MISSING


class Vacuous(Outcome):
    verdict = Verdict.VACUOUS


class NotApplicable(Outcome):
    verdict = Verdict.NOT_APPLICABLE


def wrong(message: str) -> NoReturn:
    """The device does something else than PyTorch expects."""
    raise Wrong(message)


def missing(message: str) -> NoReturn:
    """The backend lacks something, and raises a clear error."""
    raise Missing(message)


def vacuous(message: str) -> NoReturn:
    """The check saw nothing that would distinguish a stub: for instance, the host never ran ahead of the device."""
    raise Vacuous(message)


def not_applicable(message: str) -> NoReturn:
    """The check does not apply to the device: for instance, there is only one."""
    raise NotApplicable(message)


# How PyTorch, and backends in its manner, say that something is not there. Matched anywhere in the message.
_ABSENT = re.compile(
    r"Could not run '[\w:.]+' (with arguments )?from the"
    r"|\bnot (been |yet |currently )*(implemented|supported|registered|available|built)\b"
    r"|\bnot have (a|an|any) (\w+ )?(kernel|implementation)"
    r"|\bis unsupported\b|\bunsupported (device|dtype|operation|backend)|\bunimplemented\b"
    r"|\b(does not|doesn't|do not|don't|cannot|can't) (yet )?support\b"
    r"|\b[Nn]o (kernel|implementation|backend type|interface|allocator|hooks?)( \w+){0,2} (for|associated|registered)\b"
    r"|[Pp]lease register|[Yy]ou should register|[Nn]eeds? to be (registered|implemented)"
    r"|\bis not a DeviceAllocator|\b_share_fd_: only available|\bUnknown device type\b|\bnyi\b"
    r"|miss(es|ing)? some necessary func"
    r"|has not registered a module"
)
_ABSENT_MODULE = re.compile(r"[Nn]o module named 'torch\.\w+'|module 'torch(_\w+)?\.\w+(\.\w+)*' has no attribute")


def first_line(error: BaseException) -> str:
    """The message of an error, without the details that follow; its type if it has no message."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def verdict_of(error: BaseException, module: object = None) -> Verdict:
    """The verdict on a check that ended with this exception. `module` is the device's module."""
    if isinstance(error, Outcome):
        return error.verdict
    if isinstance(error, NotImplementedError):
        return Verdict.MISSING
    text = str(error)
    if isinstance(error, AssertionError):
        # PyTorch also asserts that a backend has registered something: such an assertion is its, not the check's.
        return Verdict.MISSING if _raised_by_torch(error) and _ABSENT.search(text) else Verdict.WRONG
    if isinstance(error, AttributeError) and module is not None and error.obj is module:
        return Verdict.MISSING
    if isinstance(error, AttributeError | ImportError) and _ABSENT_MODULE.search(text):
        return Verdict.MISSING
    if (
        isinstance(error, RuntimeError | TypeError | ValueError)
        and not _ran_out_of_memory(error)
        and _ABSENT.search(text)
    ):
        return Verdict.MISSING
    return Verdict.ERROR


def refuses(line: str) -> bool:
    """Whether the last line of a traceback, such as "RuntimeError: ...", reports that something is missing."""
    kind, _, text = line.partition(": ")
    if kind.endswith("OutOfMemoryError") or kind.endswith("AssertionError"):
        return False
    return kind == "NotImplementedError" or " has no attribute " in text or bool(_ABSENT.search(text))


def _ran_out_of_memory(error: BaseException) -> bool:
    return type(error).__name__ == "OutOfMemoryError"


def _raised_by_torch(error: BaseException) -> bool:
    """Whether torch's own code raised it; its comparisons of tensors are the check's."""
    torch = sys.modules.get("torch")
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or torch is None or torch.__file__ is None:
        return False
    folder, path = Path(torch.__file__).parent, Path(frames[-1].filename)
    return path.is_relative_to(folder) and not path.is_relative_to(folder / "testing")
