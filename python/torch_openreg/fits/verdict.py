"""Whether a program fits on a GPU, from what its processes have measured. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .nccl import estimate
from .profiles import PROFILES
from .report import DeviceReport, Moment, Report


def size(count: float) -> str:
    """Bytes as text: ``"52.30 GiB"``."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if abs(count) >= 1 << shift:
            return f"{count / (1 << shift):.2f} {unit}"
    return f"{count:.0f} bytes"


@dataclass(frozen=True)
class Verdict:
    """Whether a program fits on a GPU.

    Attributes:
        profile: the name of the GPU.
        fits: None if the measurement does not say.
        usable: bytes that PyTorch can reserve there, beside the context and NCCL.
        needed: what the allocator reserved or, if the program ran out of memory, what tensors held with the request.
        at: where the program needs the most, or where it ran out of memory.
        context_assumed: whether the size of the CUDA context there is not known.
        context: its bytes.
        nccl: an estimate of the bytes of NCCL's buffers.
    """

    profile: str
    fits: bool | None
    usable: int
    needed: int
    at: Moment
    context_assumed: bool
    context: int = 0
    nccl: int = 0

    def __str__(self) -> str:
        peak = f"{self.needed / 2**30:.2f} of {self.usable / 2**30:.2f} GiB"
        if self.fits is None:
            return f"{self.profile}: not known, peak {peak}, a run with its memory decides"
        if self.fits:
            return f"fits on {self.profile}: peak {peak}"
        return f"does not fit on {self.profile}: peak {peak} {self.at}"


def largest(reports: Sequence[Report]) -> tuple[Report, DeviceReport]:
    """The device of all processes that ran out of memory or, if none did, that needs most."""
    every = [(report, device) for report in reports for device in report.devices]
    return max(every, key=lambda one: (_ran_out(one[0], one[1]), one[1].reserved, one[1].allocated))


def _ran_out(report: Report, device: DeviceReport) -> bool:
    return report.out_of_memory is not None and bool(device.failures)


def nccl_of(profile: str, reports: Sequence[Report]) -> int:
    """An estimate of the bytes that NCCL takes on a GPU, on the device where it takes most."""
    every = [device for report in reports for device in report.devices]
    return max((estimate(profile, device.communicators) for device in every), default=0)


def judge(profile: str, reports: Sequence[Report], usable: int, nccl: int | None = None) -> Verdict:
    """The verdict for a GPU.

    Args:
        profile: its name.
        reports: of all processes of a run.
        usable: the bytes that a device could reserve in that run.
        nccl: the bytes of NCCL's buffers, if another run has shown them.
    """
    of, device = largest(reports)
    nccl = nccl_of(profile, reports) if nccl is None else nccl
    gpu = PROFILES[profile]
    limit = gpu.usable - nccl

    def verdict(fits: bool | None, needed: int, at: Moment) -> Verdict:
        return Verdict(profile, fits, limit, needed, at, gpu.context is None, gpu.context_bytes, nccl)

    failure = of.out_of_memory
    if failure is not None and _ran_out(of, device):
        return verdict(False if limit <= usable else None, failure.allocated + failure.requested, failure.when)
    if device.reserved <= limit:
        return verdict(True, device.reserved, device.at)
    if device.allocated > limit:
        return verdict(False, device.allocated, device.at)
    # With less memory the allocator releases its cache earlier, and may come through.
    return verdict(None, device.reserved, device.at)


def sentence(verdicts: Sequence[Verdict]) -> str:
    """``"fits on h100, h200; not on a100-40: peak 52.30 of 38.90 GiB in `layers.17.mlp`, forward of step 1"``"""
    fit = [verdict.profile for verdict in verdicts if verdict.fits]
    unknown = [verdict.profile for verdict in verdicts if verdict.fits is None]
    fail = [verdict for verdict in verdicts if verdict.fits is False]
    parts = [f"fits on {', '.join(fit)}"] if fit else []
    if unknown:
        parts.append(f"not known for {', '.join(unknown)}")
    if fail:
        most = max(fail, key=lambda verdict: verdict.usable)
        names = ", ".join(verdict.profile for verdict in fail)
        peak = f"peak {most.needed / 2**30:.2f} of {most.usable / 2**30:.2f} GiB {most.at}"
        parts.append(f"{'not' if parts else 'does not fit'} on {names}: {peak}")
    return "; ".join(parts)
