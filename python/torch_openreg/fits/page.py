"""The report as one HTML file, without scripts and without network. Needs no torch."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from .charts import Line, curve_chart, kind_class, treemap
from .report import DeviceReport, Report
from .text import COMPILED, by_module, ran, unknown
from .verdict import Verdict, largest, sentence, size

_STYLE = Path(__file__).with_name("page.css")
_ROWS = 40  # of a table


def page(reports: Sequence[Report], verdicts: Sequence[Verdict]) -> str:
    """The page. Its figures are those of the device that needs most."""
    report, device = largest(reports)
    failure = report.out_of_memory
    at = "when memory ran out" if failure is not None else "at the peak"
    body = [
        f"<p class='verdict'>{escape(sentence(verdicts))}</p>",
        _facts(report, device, len(reports)),
        _verdicts(verdicts),
        "<h2>Over the run</h2>",
        curve_chart(device.curve, [Line(verdict.profile, verdict.usable) for verdict in verdicts]),
        _legend(device),
        f"<h2>By kind, {at}</h2>",
        _table("kind", device.kinds, device.held),
        f"<h2>By module, {at}</h2>",
        treemap(device.modules),
        _table("module", by_module(device), device.held),
        f"<h2>By line, {at}</h2>",
        _table("line", device.lines, device.held),
    ]
    if report.values:
        body.append("<h2>Values that were read although they were not computed</h2>")
        body.append("<table><tr><th>reads</th><th>operator</th><th>line</th></tr>")
        for value in report.values:
            cells = (str(value["count"]), str(value["op"]), str(value["line"]))
            body.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
        body.append("</table>")
    title = f"Will it fit? {shlex.join(report.program)}"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{escape(title)}</title><style>\n{_STYLE.read_text(encoding='utf-8')}</style></head>\n"
        f"<body><h1>{escape(title)}</h1>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _facts(report: Report, device: DeviceReport, ranks: int) -> str:
    rows = {"ran": ran(report)}
    if ranks > 1:
        rows["ranks"] = f"{ranks}; the figures are those of rank {report.rank}"
    rows["peak"] = f"{size(device.allocated)} in tensors, {size(device.reserved)} reserved by the allocator"
    if failure := report.out_of_memory:
        rows["failed"] = f"an allocation of {size(failure.requested)} {failure.when}"
    else:
        rows["where"] = str(device.at)
    rows["allocations"] = str(device.allocations)
    if lacking := list(unknown(report, device)):
        rows["unknown"] = "; ".join(lacking)
    if device.retries:
        rows["retries"] = f"{device.retries}: the allocator had to release its cache"
    if report.compiled:
        rows["compiled"] = COMPILED
    rows["values"] = "computed" if report.computed else "large computations did not run"
    cells = "".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in rows.items())
    return f"<table>{cells}</table>"


def _verdicts(verdicts: Sequence[Verdict]) -> str:
    rows = [
        "<table><tr><th>GPU</th><th>fits</th><th>needs</th><th>PyTorch can reserve</th><th>CUDA context</th>"
        "<th>NCCL, about</th></tr>"
    ]
    for verdict in verdicts:
        word = {True: "yes", False: "no", None: "not known"}[verdict.fits]
        note = " *" if verdict.context_assumed else ""
        rows.append(
            f"<tr><td>{escape(verdict.profile)}</td><td class='{word.replace(' ', '-')}'>{word}</td>"
            f"<td class='number'>{size(verdict.needed)}</td><td class='number'>{size(verdict.usable)}</td>"
            f"<td class='number'>{size(verdict.context)}{note}</td><td class='number'>{size(verdict.nccl)}</td></tr>"
        )
    rows.append("</table>")
    if any(verdict.context_assumed for verdict in verdicts):
        rows.append("<p class='note'>* The size of the CUDA context of this GPU is not known; 595 MiB are assumed.</p>")
    return "".join(rows)


def _legend(device: DeviceReport) -> str:
    entries = [f"<li><span class='{kind_class(kind)}'></span>{escape(kind)}</li>" for kind in device.curve.kinds]
    return f"<ul class='legend'>{''.join(entries)}<li><span class='reserved'></span>reserved by the allocator</li></ul>"


def _table(title: str, rows: Mapping[str, int], held: int) -> str:
    lines = [f"<table><tr><th>{title}</th><th>memory</th><th>share</th></tr>"]
    for name, count in list(rows.items())[:_ROWS]:
        share = f"{count / held:.1%}" if held else ""
        lines.append(
            f"<tr><td>{escape(name) or '(none)'}</td><td class='number'>{size(count)}</td>"
            f"<td class='number'>{share}</td></tr>"
        )
    if len(rows) > _ROWS:
        rest = sum(list(rows.values())[_ROWS:])
        lines.append(f"<tr><td>({len(rows) - _ROWS} others)</td><td class='number'>{size(rest)}</td><td></td></tr>")
    return "".join([*lines, "</table>"])
