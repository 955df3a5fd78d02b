"""Checks that sources include only what their layer may use.

All targets share one include path, so the compiler accepts any header of the project. LAYERS is the only list of the
layers: the table in CONTRIBUTING.md, which `--write` updates, and docs/layers.svg (tools/pictures) are printed from it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Layer:
    """A row of the table."""

    folders: tuple[str, ...]
    content: str
    parts: tuple[tuple[str, ...], ...] = ()  # folders in it that have ranks of their own, lowest first; "" is the rest
    torch: bool = True  # may include it
    python: bool = False


# Lowest first. A folder may include itself and all folders of a lower rank.
LAYERS = [
    Layer(("cpp/base",), "what knows nothing of streams: settings, errors, launch sites, threads", torch=False),
    Layer(("cpp/address_space",), "the devices' memory", torch=False),
    Layer(("cpp/runtime",), "the emulated device: kernels, streams, events, graphs, scheduling", torch=False),
    Layer(("cpp/memory",), "caching allocator, memory debugger, race detector", (("",), ("pinned",)), torch=False),
    Layer(("cpp/executor",), "processes that run a device's kernels", torch=False),
    Layer(("cpp/slot",), "torch's version, the figures of an out-of-memory error"),
    Layer(("cpp/backend",), "PyTorch's device contract: allocator, guard, hooks, generator"),
    Layer(
        ("cpp/ops",),
        "operators, from a call to a command",
        (("wire",), ("launch",), ("tensors", "cuda_memory"), ("tiers", "random", "compiled", "kernels")),
    ),
    Layer(("cpp/distributed",), "the process group: collectives by PyTorch's Gloo"),
    Layer(("cpp/bindings",), "the extension module _C", python=True),
    Layer(("cpp/cuda",), "what PyTorch asks of CUDA's slot only", python=True),
    # Every layer includes some of their headers (slot_name.h, slot.h), by the name alone.
    Layer(
        ("cpp/slot/privateuse1", "cpp/slot/cuda"),
        "the two slots: the device as PrivateUse1, and as CUDA",
        python=True,
    ),
    Layer(("python/torch_openreg",), "torch.openreg, loading, adapting PyTorch's Python", python=True),
]


def _below_cpp() -> Iterator[tuple[str, int, Layer]]:
    """Each folder with its rank and its layer."""
    steps = [(layer, step) for layer in LAYERS for step in layer.parts or (("",),)]
    for rank, (layer, step) in enumerate(steps):
        for path in (f"{folder}/{part}" for folder in layer.folders for part in step):
            yield path.removeprefix("cpp/").rstrip("/"), rank, layer


_RANKS = {folder: rank for folder, rank, _ in _below_cpp()}
_LAYER_OF = {folder: layer for folder, _, layer in _below_cpp()}

_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
_TORCH = re.compile(r"(ATen|c10|torch|caffe2)/")
_PYTHON = re.compile(r"(Python\.h|nanobind/|pybind11/|torch/csrc/(Py|utils/py|python))")
_TABLE = re.compile(r"(?<=^<!-- layers: scripts/check_includes.py --write -->\n\n).*?(?=\n\n)", re.M | re.S)


def folder_of(path: str) -> str:
    """The folder that is a layer: the first two parts of a path below cpp if LAYERS names them, else the first."""
    first, *rest = path.split("/")
    inner = "/".join([first, *rest[:1]])
    return inner if inner in _RANKS or first == "ops" else first


def complaints(sources: Path) -> Iterator[str]:
    """One complaint for each include that a layer must not have, and for each folder that has no layer."""
    for source in sorted(each for each in sources.rglob("*") if each.suffix in (".h", ".cpp")):
        path = source.relative_to(sources).as_posix()
        folder = folder_of(path)
        if folder not in _RANKS:
            yield f"{path}: {folder} has no layer in scripts/check_includes.py"
            continue
        for included in _INCLUDE.findall(source.read_text()):
            other = folder_of(included)
            if "/" in included and other in _RANKS:
                allowed = other == folder or _RANKS[other] < _RANKS[folder]
            else:
                allowed = _LAYER_OF[folder].torch or not _TORCH.match(included)
                allowed = allowed and (_LAYER_OF[folder].python or not _PYTHON.match(included))
            if not allowed:
                yield f"{path}: {folder} must not include {included}"


def parts_of(layer: Layer) -> str:
    """The parts of a layer as a phrase, lowest first; empty if it has none."""
    return ", then ".join(", ".join(part or "the rest" for part in step) for step in layer.parts)


def table() -> str:
    """The layers as a table, as CONTRIBUTING.md shows it."""
    lines = ["| where | what | may also use |", "|---|---|---|"]
    for layer in LAYERS:
        where = ", ".join(f"`{folder}`" for folder in layer.folders)
        what = f"{layer.content}; {parts_of(layer)}" if layer.parts else layer.content
        uses = ["torch"] * layer.torch + ["Python"] * layer.python
        lines.append(f"| {where} | {what} | {', '.join(uses) or 'C++20 and threads'} |")
    return "\n".join(lines)


def main() -> int:
    """Prints the complaints, or with --write updates the table; returns the exit status."""
    document = ROOT / "CONTRIBUTING.md"
    text = document.read_text()
    written = _TABLE.sub(lambda _: table(), text)
    if sys.argv[1:] == ["--write"]:
        document.write_text(written)
        return 0
    found = list(complaints(ROOT / "cpp"))
    if text != written or table() not in text:
        found.append("CONTRIBUTING.md has another table of layers; run: python scripts/check_includes.py --write")
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
