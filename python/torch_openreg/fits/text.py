"""The report in the terminal. Needs no torch."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from .charts import grouped
from .report import DeviceReport, Ended, Report
from .verdict import Verdict, largest, sentence, size

ROWS = 8
"""Modules and lines that are listed."""
COMPILED = "torch.compile fused operators as for the CPU; on a GPU other buffers may be needed"


def lines(reports: Sequence[Report], verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The lines of the report of a run, with the figures of the device that needs most."""
    report, device = largest(reports)
    yield sentence(verdicts)
    yield ""
    yield f"program   {shlex.join(report.program)}"
    yield f"ran       {ran(report)}"
    if len(reports) > 1:
        peaks = [max(each.reserved for each in one.devices) for one in reports]
        span = f"{size(min(peaks))} to {size(max(peaks))}"
        yield f"ranks     {len(reports)}, which reserve {span}; below: rank {report.rank}"
    yield f"peak      {size(device.allocated)} in tensors, {size(device.reserved)} reserved by the allocator"
    failure = report.out_of_memory
    if failure is not None:
        yield (
            f"failed    an allocation of {size(failure.requested)} {failure.when}, when tensors held "
            f"{size(failure.allocated)}, and the allocator {size(failure.reserved)}"
        )
    else:
        yield f"where     {device.at}"
    yield f"beside    {beside(verdicts)}"
    for line in unknown(report, device):
        yield f"unknown   {line}"
    if device.retries:
        yield f"retries   {device.retries}: the allocator had to release its cache, which takes time"
    yield f"host      {size(report.host)} of this machine's memory"
    if not report.computed:
        count = sum(int(value["count"]) for value in report.values)
        yield f"values    not computed; the program read {count} that are unknown" + (":" if count else "")
        for value in report.values[:ROWS]:
            yield f"          {value['count']:>6}  {value['op']} at {value['line']}"
    if report.compiled:
        yield f"compiled  {COMPILED}"
    at = "when memory ran out" if failure is not None else "at the peak"
    yield from _table(f"by kind, {at}", device.kinds, device.held, len(device.kinds))
    yield from _table(f"by module, {at}", by_module(device), device.held, ROWS)
    by_line = {line or "(no line of the program)": count for line, count in device.lines.items()}
    yield from _table(f"by line, {at}", by_line, device.held, ROWS)


def beside(verdicts: Sequence[Verdict]) -> str:
    """What a process takes of the GPUs beside the allocator, which the verdicts count."""

    def span(sizes: list[int]) -> str:
        least, most = size(min(sizes)), size(max(sizes))
        return least if least == most else f"{least} to {most}"

    contexts = span([verdict.context for verdict in verdicts])
    assumed = " (assumed)" if any(verdict.context_assumed for verdict in verdicts) else ""
    text = f"the CUDA context takes {contexts}{assumed}"
    buffers = [verdict.nccl for verdict in verdicts]
    return f"{text}, NCCL's buffers about {span(buffers)}" if any(buffers) else text


def unknown(report: Report, device: DeviceReport) -> Iterator[str]:
    """What the figures lack."""
    if device.convolution:
        yield (
            f"cuDNN's workspaces for convolutions: they raise the peak by 0 to about {size(device.convolution)}, less "
            "where there is no room"
        )
    for each in report.unknown:
        if "convolution" in each["ops"] and "cuDNN" in each["what"]:
            continue
        ops = str(each["ops"]).split()
        names = ops[0] if len(ops) == 1 else f"{ops[0]}, ..."
        yield f"{each['what']} ({names}), in {each['calls']} calls"


def by_module(device: DeviceReport) -> dict[str, int]:
    """The bytes of modules with those below them, largest first."""
    sums = {name or "(none)": sum(kinds.values()) for name, kinds in grouped(device.modules).items()}
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def ran(report: Report) -> str:
    """How far the program ran: ``"3 steps, 6.5 s"``."""
    steps = f"{report.steps} step{'s' if report.steps != 1 else ''}"
    ended = {
        Ended.STEPS: steps,
        Ended.PROGRAM: f"to its end, {steps}",
        Ended.OUT_OF_MEMORY: f"out of memory after {steps}",
        Ended.ERROR: f"to an error after {steps}",
        Ended.INTERRUPTED: f"until it was interrupted after {steps}",
    }[report.ended]
    return f"{ended}, {report.seconds:.1f} s"


def _table(title: str, rows: Mapping[str, int], held: int, most: int) -> Iterator[str]:
    yield ""
    yield title
    shown = list(rows.items())[:most]
    rest = held - sum(count for _, count in shown)
    if rest:
        shown.append((f"({len(rows) - len(shown)} others)", rest))
    for name, count in shown:
        yield f"  {size(count):>12}  {count / held if held else 0:>4.0%}  {name}"
