"""The layers: which uses which, what PyTorch calls in each, and which of them are one library.

The list of layers is that of scripts/check_includes.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

from svg import arrow, box, picture, text

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from check_includes import LAYERS as LOWEST_FIRST, parts_of

WIDTH, TOP, STEP, HEIGHT = 880, 66, 66, 54
LEFT, BOX_WIDTH = 310, 430
TORCH, TORCH_WIDTH = 16, 244

LAYERS = LOWEST_FIRST[::-1]
# What PyTorch calls in a layer.
ASKS = {
    "python/torch_openreg": ("import torch", "the entry point, torch.openreg"),
    "cpp/distributed": ("torch.distributed", "c10d::Backend"),
    "cpp/ops": ("dispatcher", "operators, by the device's dispatch key"),
    "cpp/backend": ("guards, hooks, storages", "devices, streams, memory, errors"),
}
# The sources of a slot are in _C or in the library.
GROUPS = [
    ("python/torch_openreg", "python/torch_openreg", "Python"),
    ("cpp/bindings", "cpp/bindings", "_C"),
    ("cpp/distributed", "cpp/base", "libtorch_openreg.so"),
    ("cpp/executor", "cpp/base", "no torch"),
]


def draw() -> str:
    """The picture."""
    y_of = {layer.folders[0]: TOP + STEP * number for number, layer in enumerate(LAYERS)}
    parts = [
        text(TORCH, TOP - 26, "PyTorch calls", "head"),
        text(LEFT, TOP - 26, "torch_openreg: each layer uses those below it", "head"),
    ]
    for layer in LAYERS:
        does = parts_of(layer).replace(", then ", "; ") if len(layer.parts) > 3 else layer.content  # one line
        parts.append(box("ours", LEFT, y_of[layer.folders[0]], BOX_WIDTH, HEIGHT, ", ".join(layer.folders), does))
    for folder, (name, what) in ASKS.items():
        y = y_of[folder]
        parts.append(box("torch", TORCH, y, TORCH_WIDTH, HEIGHT, name, what))
        parts.append(arrow((TORCH + TORCH_WIDTH, y + HEIGHT / 2), (LEFT - 3, y + HEIGHT / 2)))
    for first, last, name in GROUPS:
        x = LEFT + BOX_WIDTH + (12 if name != "no torch" else 80)
        top, bottom = y_of[first] + 4, y_of[last] + HEIGHT - 4
        parts.append(f'<path class="arrow" d="M {x} {top} h 6 V {bottom} h -6"/>')
        middle = (top + bottom) / 2
        label_x = x + 20
        if last != first:
            place = f'transform="translate({label_x} {middle:g}) rotate(90)"'
            parts.append(f'<text class="name" text-anchor="middle" {place}>{name}</text>')
        else:
            parts.append(text(x + 14, middle + 4, name, "name"))
    kernels, ops = y_of["cpp/slot"], y_of["cpp/ops"] + HEIGHT - 8
    parts.append(
        box("torch", TORCH, kernels, TORCH_WIDTH, HEIGHT, "at::cpu, at::native", "the CPU's kernels, called by ops")
    )
    turn = TORCH + TORCH_WIDTH + 25
    parts.append(arrow((LEFT, ops), (turn, ops), (turn, kernels + 27), (TORCH + TORCH_WIDTH + 3, kernels + 27)))
    return picture("The layers of torch_openreg", WIDTH, TOP + STEP * (len(LAYERS) - 1) + HEIGHT + 16, parts)
