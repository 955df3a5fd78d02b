"""The report of a process: what was measured, as data and as JSON. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .nccl import Communicator

VERSION = 1
"""Of the JSON: a file with another version has other fields."""


class Kind:
    """What memory is for, in the order in which reports list it."""

    PARAMETERS = "parameters"
    GATHERED = "parameters, gathered"
    BUFFERS = "buffers"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    ACTIVATIONS = "activations"
    FORWARD = "temporary, forward"
    BACKWARD = "temporary, backward"
    OPTIMIZER = "temporary, optimizer"
    WORKSPACES = "workspaces"
    DATA = "inputs and other data"


KINDS = tuple(value for name, value in vars(Kind).items() if name.isupper())


class Ended:
    """How a program ended."""

    STEPS = "steps"  # after the requested steps
    PROGRAM = "program"  # by itself
    OUT_OF_MEMORY = "out of memory"
    ERROR = "error"
    INTERRUPTED = "interrupted"


@dataclass
class Moment:
    """When something happened: the step, from 1 (None: the program has no optimizer), what ran (``"forward"``,
    ``"backward"``, ``"recomputation"``, ``"optimizer"``, ``"outside of modules"``), the module and the program's line,
    each of which may be empty."""

    step: int | None
    phase: str
    module: str
    line: str

    def __str__(self) -> str:
        step = "" if self.step is None else f" of step {self.step}"
        if self.module:
            text = f"in `{self.module}`, {self.phase}{step}"
        elif self.phase in ("forward", "backward"):
            text = f"in the {self.phase} pass{step}"
        elif self.phase in ("recomputation", "optimizer"):
            text = f"in the {self.phase}{step}"
        else:
            text = self.phase + step.replace(" of ", ", ")
        return f"{text} ({self.line})" if self.line else text


@dataclass
class OutOfMemory:
    """A failed allocation, in bytes: what was requested, and what tensors and the allocator held then."""

    requested: int
    allocated: int
    reserved: int
    when: Moment


@dataclass
class Curve:
    """Bytes by kind over the run, at places that keep each maximum of the sum.

    Attributes:
        kinds: for each kind that occurs, its bytes at each place.
        reserved: by the allocator, at each place.
        steps: at which place each step ended.
    """

    kinds: dict[str, list[int]]
    reserved: list[int]
    steps: list[int]


@dataclass
class DeviceReport:
    """One device's memory, in bytes.

    Attributes:
        index: of the device.
        total: of the device.
        allocated, reserved: the peaks of what tensors held, and of what the allocator held from the device.
        at: when `kinds`, `modules` and `lines` were so: at the peak or, if the program ran out of memory, at that time.
        held: the sum of each of them.
        kinds: bytes by kind, in the order of `KINDS`, without zeros.
        modules: bytes by module, largest first, each with its kinds; the module ``""`` is what belongs to none.
        lines: bytes by the line of the program that allocated them, largest first.
        allocations: how many there were.
        retries: how often the allocator had to release its cache to serve one.
        failures: the allocations that failed.
        communicators: of NCCL, when there were most.
        convolution: bytes by which cuDNN's workspaces, which are not known, could raise the peak.
    """

    index: int
    total: int
    allocated: int
    reserved: int
    at: Moment
    held: int
    kinds: dict[str, int]
    modules: dict[str, dict[str, int]]
    lines: dict[str, int]
    curve: Curve
    allocations: int
    retries: int = 0
    failures: list[OutOfMemory] = field(default_factory=list)
    communicators: list[Communicator] = field(default_factory=list)
    convolution: int = 0


@dataclass
class Report:
    """What a process measured.

    Attributes:
        program: its arguments.
        ended: one of `Ended`.
        steps: how many were completed.
        seconds: from the first use of the device to the end.
        rank: of the process.
        host: the most that the process held of the host's memory, in bytes.
        devices: those that were used.
        computed: whether large kernels ran, so that values are those of the program.
        values: what the program read although it was not computed: ``line``, ``op``, ``count``.
        compiled: how many kernels of `torch.compile` were launched. They are fused as for the CPU.
        unknown: what CUDA's operators allocate in addition, of unknown size: ``what``, ``ops``, ``calls``.
    """

    program: list[str]
    ended: str
    steps: int
    seconds: float
    rank: int
    host: int
    devices: list[DeviceReport]
    computed: bool = True
    values: list[dict[str, Any]] = field(default_factory=list)
    compiled: int = 0
    unknown: list[dict[str, Any]] = field(default_factory=list)
    version: int = VERSION

    @property
    def largest(self) -> DeviceReport:
        """The device that needs the most memory."""
        return max(self.devices, key=lambda device: (device.reserved, device.allocated))

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The failed allocation that ended the program, if one did."""
        if self.ended != Ended.OUT_OF_MEMORY:
            return None
        return next((device.failures[-1] for device in self.devices if device.failures), None)

    def write(self, file: Path) -> None:
        """Replaces the file at once: its reader may be another process."""
        beside = file.with_suffix(".part")
        beside.write_text(json.dumps(asdict(self)))
        beside.replace(file)


def _moment(data: dict[str, Any]) -> Moment:
    return Moment(**data)


def _failure(data: dict[str, Any]) -> OutOfMemory:
    return OutOfMemory(**{**data, "when": _moment(data["when"])})


def _device(data: dict[str, Any]) -> DeviceReport:
    return DeviceReport(
        **{
            **data,
            "at": _moment(data["at"]),
            "curve": Curve(**data["curve"]),
            "failures": [_failure(each) for each in data["failures"]],
            "communicators": [Communicator(**each) for each in data.get("communicators", [])],
        }
    )


def from_json(data: dict[str, Any]) -> Report:
    """The inverse of `dataclasses.asdict`.

    Raises:
        ValueError: the data has another version.
    """
    if data.get("version") != VERSION:
        raise ValueError(f"openreg: the report has another version (got {data.get('version')!r}, expected {VERSION})")
    return Report(**{**data, "devices": [_device(each) for each in data["devices"]]})


def read(file: Path) -> Report:
    return from_json(json.loads(file.read_text()))
