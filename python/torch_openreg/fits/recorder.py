"""Records a program from its first use of the device, ends it after some steps, and makes the report."""

from __future__ import annotations

import gc
import resource
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .. import _C, openreg
from ..openreg.memory_hooks import register_out_of_memory_hook
from . import gathered
from .analysis import analyse, relative
from .log import Before
from .modules import OPTIMIZER, Modules
from .nccl import Communicator
from .owners import Owners
from .report import Ended, Report

_MOST_SAMPLES = 8  # of a module's parameters within a step: a program may call it often


class Recorder:
    """Records all devices of the process from its making to `finish`. There is at most one.

    Args:
        usable: bytes that each device may reserve; None: all.
        on_step: a function of the number of completed steps and the seconds since the beginning.
    """

    def __init__(self, usable: int | None = None, on_step: Callable[[int, float], object] | None = None) -> None:
        self._begin = time.monotonic()
        self._on_step = on_step
        self._devices = range(_C.device_count())
        self._fractions = [_C.get_memory_fraction(device) for device in self._devices]
        if usable is not None:
            total = openreg.mem_get_info(0)[1]
            for device in self._devices:
                _C.set_memory_fraction(device, min(1.0, usable / total))
        self._compiled = _C.launch_stats()["compiled"]
        self._before = [_held(device) for device in self._devices]
        self._calls_before = _calls()
        _C.reset_convolution_use()
        _C.reset_communicators()
        _C.begin_allocation_log()
        self._modules = Modules()
        self._owners = Owners(self._modules)
        gathered.follow(self._modules)
        self._modules.on_root.append(self._root_begins)
        self._handles = (
            register_optimizer_step_pre_hook(self._step_begins),
            register_optimizer_step_post_hook(self._step_ends),
            register_out_of_memory_hook(self._out_of_memory),
        )
        self._counts: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._expected: weakref.WeakSet[Optimizer] | None = None  # in the first step, those that have not stepped yet
        self._tag_before = threading.local()
        self._ends: list[dict[int, int]] = []  # of the steps: the length of each device's log
        self._samples: weakref.WeakKeyDictionary[nn.Module, tuple[int, int]] = weakref.WeakKeyDictionary()
        self._report: Report | None = None
        self._failed_after: int | None = None  # the number of completed steps when memory last ran out

    @property
    def steps(self) -> int:
        """How many steps were completed. With several optimizers, a step ends when the last of them has stepped."""
        return len(self._ends)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether memory has run out since the last completed step."""
        return self._failed_after == self.steps

    def _root_begins(self, module: nn.Module) -> None:
        step, samples = self._samples.get(module, (-1, 0))
        samples = samples + 1 if step == self.steps else 1
        self._samples[module] = self.steps, samples
        if samples <= _MOST_SAMPLES and (self.steps < 16 or samples == 1):
            self._owners.of_module(module)

    def _step_begins(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self._expected and optimizer in self._counts:
            self._expected.clear()  # they are not in use
            self._end_step()
        self._owners.of_optimizer(optimizer)
        self._tag_before.value = _C.set_allocation_tag(OPTIMIZER)

    def _step_ends(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        _C.set_allocation_tag(getattr(self._tag_before, "value", 0))
        self._owners.of_optimizer(optimizer)
        if self._expected is None:
            every = (each for each in gc.get_objects() if issubclass(type(each), Optimizer))
            # A wrapper that has not called Optimizer.__init__ has no hooks.
            self._expected = weakref.WeakSet(each for each in every if getattr(type(each).step, "hooked", False))
        self._expected.discard(optimizer)
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        if not self._expected:
            self._end_step()

    def _end_step(self) -> None:
        most = max(self._counts.values())
        # One that has stopped stepping does not hold up the others.
        if min(count for count in self._counts.values() if count >= most - 1) <= self.steps:
            return
        self._ends.append({device: _C.allocation_log_length(device) for device in self._devices})
        if self._on_step:
            self._on_step(self.steps, self.seconds)

    def _out_of_memory(self, device: int, size: int) -> bool:
        self._failed_after = self.steps
        self._owners.of_everything()
        return False

    def finish(self, ended: str) -> Report:
        """Ends the recording. Later calls return the report of the first.

        Args:
            ended: one of `Ended`.
        """
        if self._report is not None:
            return self._report
        self._owners.of_everything()
        failed = ended == Ended.OUT_OF_MEMORY
        devices = []
        for device in self._devices:
            ends = [lengths[device] for lengths in self._ends] if self._owners.optimizers else None
            total = openreg.mem_get_info(device)[1]
            report = analyse(device, self._modules, self._before[device], self._owners.marks, ends, total, failed)
            if report is not None:
                report.retries = openreg.memory_stats(device).get("num_alloc_retries", 0)
                report.communicators = [
                    Communicator(ranks, collectives, peers)
                    for of, ranks, collectives, peers in _C.communicators()
                    if of == device and ranks > 1
                ]
                report.convolution = max(0, _C.convolution_use(device)[1] - report.allocated)
                devices.append(report)
        self._stop()
        computes = _C.computes()
        self._report = Report(
            program=list(sys.argv),
            ended=ended,
            steps=self.steps,
            seconds=self.seconds,
            rank=0,
            host=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
            devices=devices,
            computed=computes,
            values=[] if computes else [{**read, "line": relative(read["line"])} for read in _unknown_reads()],
            compiled=max(0, _C.launch_stats()["compiled"] - self._compiled),
            unknown=_unknown_allocations(self._calls_before),
        )
        return self._report

    def _stop(self) -> None:
        self._modules.remove()
        gathered.unfollow()
        for handle in self._handles:
            handle.remove()
        _C.end_allocation_log()
        for device, fraction in zip(self._devices, self._fractions, strict=True):
            _C.set_memory_fraction(device, fraction)


def _unknown_reads() -> list[dict[str, Any]]:
    reads: list[dict[str, Any]] = _C.compute_report()["unknown_reads"]
    return reads


def _calls() -> list[int]:
    return [entry["calls"] for entry in _C.cuda_allocations()]


def _unknown_allocations(calls_before: list[int]) -> list[dict[str, Any]]:
    entries = zip(_C.cuda_allocations(), calls_before, strict=True)
    return [
        {"what": entry["what"], "ops": entry["ops"], "calls": entry["calls"] - before}
        for entry, before in entries
        if entry["certainty"] == "unknown" and entry["calls"] > before
    ]


def _held(device: int) -> Before:
    segments = _C.memory_snapshot(device, None, False)["segments"]
    blocks = [block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"]
    return Before(
        [(block["address"], block["size"]) for block in blocks], sum(segment["total_size"] for segment in segments)
    )
