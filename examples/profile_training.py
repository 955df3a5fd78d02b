"""Profiles a training step on `openreg` that copies its batches on a second stream, and draws its timeline.

    python examples/profile_training.py [--trace trace.json] [--picture timeline.svg]

Two streams: while the device computes with one batch, the next is copied and normalised. The trace opens in any viewer
of Chrome traces (ui.perfetto.dev); the picture shows its contents: the host's launches, and what each stream ran when.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import profile, record_function

BATCH, FEATURES, HIDDEN = 1024, 2048, 128
CATEGORIES = {  # categories of a trace that are drawn, with their classes in STYLE
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "copy",
    "privateuse1_runtime": "host",
    "gpu_user_annotation": "range",
}
# Light or dark, like the reader's system.
STYLE = """
text { fill: #24292f; font: 10px sans-serif }
rect { stroke: #ffffff; stroke-width: 0.3 }
.page { fill: #ffffff }
.kernel { fill: #7ba3cc }
.copy { fill: #e45756 }
.host { fill: #b0b0b0 }
.range { fill: #f2cf5b }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  rect { stroke: #0d1117 }
  .page { fill: #0d1117 }
  .kernel { fill: #3a6698 }
  .copy { fill: #b83a3a }
  .host { fill: #6e7681 }
  .range { fill: #7d6414 }
}
"""
WIDTH, LABEL, ROW = 960, 150, 34  # of the picture, in pixels

Event = dict[str, Any]


class Training:
    """A small network, and batches that are prefetched on a second stream."""

    def __init__(self, device: torch.device) -> None:
        self.model = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 10)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, fused=True)
        self.copies = torch.Stream(device)
        self.on_host = torch.randn(BATCH, FEATURES).pin_memory()
        self.labels = torch.randint(10, (BATCH,)).to(device)
        self.fetched = self.fetch()

    def fetch(self) -> torch.Tensor:
        """The next batch, normalised: float32, [BATCH, FEATURES]; ready when the second stream has completed."""
        with record_function("fetch"), self.copies:
            batch = self.on_host.to(self.copies.device, non_blocking=True)
            return nn.functional.layer_norm(batch, (FEATURES,))

    def step(self) -> None:
        compute = torch.accelerator.current_stream()
        compute.wait_stream(self.copies)
        batch = self.fetched
        batch.record_stream(compute)
        self.fetched = self.fetch()
        with record_function("train"):
            loss = nn.functional.cross_entropy(self.model(batch), self.labels)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


def profile_steps(steps: int, file: Path) -> list[Event]:
    """Profiles `steps` steps after as many warm-up steps; writes a Chrome trace and returns its events."""
    device = torch.accelerator.current_accelerator()
    assert device is not None
    training = Training(device)
    for _ in range(steps):
        training.step()
    torch.accelerator.synchronize()
    with profile() as prof:
        for _ in range(steps):
            training.step()
        torch.accelerator.synchronize()
    print(prof.key_averages().table(sort_by="self_device_time_total", row_limit=8, max_name_column_width=40))
    prof.export_chrome_trace(str(file))
    events: list[Event] = json.loads(file.read_text())["traceEvents"]
    return events


def tracks(events: list[Event]) -> dict[str, list[Event]]:
    """The slices of the host's launches and of each stream, by track name."""
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    by_track: dict[str, list[Event]] = {}
    for event in events:
        category = event.get("cat")
        if event["ph"] != "X" or category not in CATEGORIES or event["name"] == "Event Record":
            continue
        host = category == "privateuse1_runtime"
        track = "host" if host else f"openreg:{event['pid']}, {names[event['pid'], event['tid']]}"
        if category == "gpu_user_annotation":
            track += ": " + ("waits" if event["name"] == "Stream Wait Event" else "ranges")
        by_track.setdefault(track, []).append(event)
    return {name: by_track[name] for name in sorted(by_track)}


def draw(events: list[Event], file: Path) -> None:
    """Draws the tracks as an SVG; the width is the time from the start of the first slice to the end of the last."""
    rows = tracks(events)
    slices = [event for row in rows.values() for event in row]
    begin = min(event["ts"] for event in slices)
    scale = (WIDTH - LABEL) / (max(event["ts"] + event["dur"] for event in slices) - begin)
    height = ROW * len(rows) + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
    ]
    for number, (name, row) in enumerate(rows.items()):
        y = ROW * number + 6
        device, _, rest = name.partition(", ")
        lines.append(f'<text x="4" y="{y + 11}">{escape(device)}</text><text x="4" y="{y + 23}">{escape(rest)}</text>')
        for event in row:
            x, width = LABEL + (event["ts"] - begin) * scale, max(event["dur"] * scale, 0.5)
            title = f"{event['name']}: {event['dur']:.1f} us"
            lines.append(
                f'<rect class="{CATEGORIES[event["cat"]]}" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 8}">'
                f"<title>{escape(title)}</title></rect>"
            )
            if width > 6 * len(event["name"]):
                lines.append(f'<text x="{x + 3:.2f}" y="{y + 17}">{escape(event["name"])}</text>')
    lines.append(f'<text x="{LABEL}" y="{height - 6}">0</text>')
    end = f"{(WIDTH - LABEL) / scale / 1000:.1f} ms"
    lines.append(f'<text x="{WIDTH - 4}" y="{height - 6}" text-anchor="end">{end}</text></svg>')
    file.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--trace", type=Path, help="keep the Chrome trace in this file")
    parser.add_argument("--picture", type=Path, default=Path("timeline.svg"))
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        events = profile_steps(arguments.steps, arguments.trace or Path(folder, "trace.json"))
    draw(events, arguments.picture)
    for name, row in tracks(events).items():
        print(f"{name}: {len(row)} slices, {sum(event['dur'] for event in row) / 1000:.2f} ms")


if __name__ == "__main__":
    main()
