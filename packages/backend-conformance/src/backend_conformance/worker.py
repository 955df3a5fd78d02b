"""A process that runs checks, and appends a line to a file before and after each: its parent knows where it died."""

from __future__ import annotations

import contextlib
import gc
import json
import linecache
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from . import groups, registry
from .device import Device, set_up
from .verdicts import Outcome, Verdict, verdict_of

_LONGEST_MESSAGE = 2000


class Report:
    """Lines for the parent. The file is opened for each, because a check may close all descriptors."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._process = os.getpid()

    def write(self, **line: Any) -> None:
        if os.getpid() != self._process:
            os._exit(1)  # a child that a check forked, and that came back from it
        with self._path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(line) + "\n")


def main() -> None:
    gc.disable()  # the imports make no garbage, and take a third less time
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    _no_core_file()
    report = Report(Path(job["report"]))
    folder = Path(job["folder"])
    if job["task"] == "list":
        list_groups(folder, report)
    else:
        run(folder, job, report)
    report.write(done=True)


def list_groups(folder: Path, report: Report) -> None:
    """Describes all checks, in their files' order."""
    for group in groups.names(folder):
        try:
            checks = groups.load(folder, group)
            described = [_describe(each, identifier) for each in checks for identifier in each.ids()]
        except Exception:
            report.write(broken=group, message=traceback.format_exc(limit=-3))
            continue
        report.write(group=group, introduction=groups.introduction(group), checks=described)


def _describe(check: registry.Check, identifier: str) -> dict[str, Any]:
    return {
        "id": identifier,
        "group": check.group,
        "level": check.level.label,
        "hook": check.hook,
        "page": check.page,
        "needs": check.needs,
        "alone": check.alone,
        "timeout": check.timeout,
        "doc": check.doc,
    }


def run(folder: Path, job: dict[str, Any], report: Report) -> None:
    device = Device(job["device"], job["setup"])
    try:
        set_up(device.setup)
        import torch

        torch.set_num_threads(job["threads"])
        torch.backends.cudnn.allow_tf32 = False  # the default rounds the inputs of convolutions to 10 bits
    except Exception:
        report.write(failed=traceback.format_exc())
        return
    gc.freeze()
    gc.enable()
    report.write(torch=torch.__version__)
    for identifier in job["ids"]:
        report.write(begins=identifier, printed=_printed())
        begin = time.perf_counter()
        verdict, message = _outcome(folder, identifier, device)
        report.write(ends=identifier, verdict=verdict.value, message=message, seconds=time.perf_counter() - begin)


def _outcome(folder: Path, identifier: str, device: Device) -> tuple[Verdict, str]:
    base, bracket, case = identifier.partition("[")
    try:
        if base not in registry.CHECKS:
            groups.load(folder, base.partition(".")[0])
        function = registry.CHECKS[base].function
        if bracket:
            function(device, case[:-1])
        else:
            function(device)
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        message = _message(error, folder)
        verdict = verdict_of(error, _module(device))
        traceback.clear_frames(error.__traceback__)  # tensors of a failed check hold no memory in the next
        _settle()
        return verdict, message
    return Verdict.PASS, ""


def _message(error: BaseException, folder: Path) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).parent == folder]
    frame = own[-1] if own else frames[-1]
    text = str(error).strip()
    if isinstance(error, Outcome):
        return text
    if isinstance(error, AssertionError):
        text = text or linecache.getline(frame.filename, frame.lineno or 0).strip()
    else:
        text = f"{type(error).__name__}: {text}"
    if len(text) > _LONGEST_MESSAGE:
        text = text[:_LONGEST_MESSAGE] + " ..."
    return f"{text} ({Path(frame.filename).name}:{frame.lineno})"


def _module(device: Device) -> object:
    """The device's module; it can be any object, which names itself as it likes in an error."""
    import torch

    return getattr(torch, device.name, None)


def _printed() -> int:
    """The size of the file that standard error is, by which the parent tells the output of checks apart."""
    with contextlib.suppress(OSError):
        return os.fstat(2).st_size
    return 0


def _settle() -> None:
    """Waits for what a failed check submitted, and drops its error: the next check is not to blame."""
    import torch

    with contextlib.suppress(Exception):
        torch.accelerator.synchronize()


def _no_core_file() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
