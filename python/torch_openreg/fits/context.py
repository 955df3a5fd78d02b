"""``with torch.openreg.fits("h100") as report``."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from .. import _C, openreg
from . import text
from .page import page
from .profiles import PROFILES, with_memory
from .recorder import Recorder
from .report import DeviceReport, Ended, Report
from .verdict import Verdict, judge


class FitsReport:
    """The result, complete when the ``with`` block has ended. As text it is the report that the command prints."""

    def __init__(self, profile: str, usable: int) -> None:
        self._profile = profile
        self._usable = usable
        self._done: Report | None = None

    @property
    def measured(self) -> bool:
        """Whether the block has ended, and has allocated memory."""
        return self._done is not None and bool(self._done.devices)

    @property
    def report(self) -> Report:
        """All that was measured.

        Raises:
            RuntimeError: the block has not ended, or nothing was allocated in it.
        """
        if self._done is None:
            raise RuntimeError("openreg: the report of fits is complete when its with block has ended")
        if not self._done.devices:
            raise RuntimeError(
                "openreg: fits has nothing to report, because the block allocated no memory on the device"
            )
        return self._done

    @property
    def verdict(self) -> Verdict:
        """Whether it fits on the GPU, and where it needs most."""
        return judge(self._profile, [self.report], self._usable)

    @property
    def fits(self) -> bool:
        """Whether it fits on the GPU. False also if that is not known, because this device has less memory."""
        return bool(self.verdict.fits)

    @property
    def device(self) -> DeviceReport:
        """The figures of the device that needs most: the peak by kind, module and line."""
        return self.report.largest

    def write_html(self, file: str | Path) -> None:
        """Writes the report as one page, which needs no network."""
        Path(file).write_text(page([self.report], [self.verdict]), encoding="utf-8")

    def write_json(self, file: str | Path) -> None:
        """Writes `report` as JSON."""
        Path(file).write_text(json.dumps(dataclasses.asdict(self.report), indent=1) + "\n")

    def __str__(self) -> str:
        return "\n".join(text.lines([self.report], [self.verdict]))


_active: list[FitsReport] = []


@contextmanager
def record(profile: str) -> Iterator[FitsReport]:
    """`torch.openreg.fits`."""
    if profile not in with_memory():
        raise ValueError(f"openreg: unknown profile (got {profile!r}, expected one of {', '.join(with_memory())})")
    from .request import folder_of_process

    if _active or folder_of_process() is not None:
        raise RuntimeError("openreg: fits is active already, and records all devices: it cannot be nested")
    openreg.init()
    total = openreg.mem_get_info(0)[1]
    usable = min(PROFILES[profile].usable, total)
    result = FitsReport(profile, usable)
    _active.append(result)
    recorder = Recorder(usable)
    gpu = PROFILES[profile].gpu
    gpu_before = _C.set_gpu(*gpu.capability, gpu.multiprocessors, gpu.threads) if gpu else None
    ended = Ended.PROGRAM
    try:
        yield result
    except torch.OutOfMemoryError:
        ended = Ended.OUT_OF_MEMORY if recorder.ran_out_of_memory else Ended.ERROR
        raise
    except BaseException:
        ended = Ended.ERROR
        raise
    finally:
        if gpu_before:
            _C.set_gpu(*gpu_before)
        _active.clear()
        result._done = recorder.finish(ended)
