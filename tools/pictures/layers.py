"""The layers: which uses which, what PyTorch calls in each, and which of them are one library."""

from __future__ import annotations

from svg import arrow, box, picture, text

WIDTH, TOP, STEP, HEIGHT = 880, 66, 66, 54
LEFT, BOX_WIDTH = 310, 430
TORCH, TORCH_WIDTH = 16, 244

LAYERS = [
    ("python/torch_openreg", "torch.openreg, autoload, patches of PyTorch's Python"),
    ("cpp/bindings", "the extension module _C; the only place with Python.h"),
    ("cpp/distributed", "the process group: collectives by PyTorch's Gloo"),
    ("cpp/ops", "wire, launch, tensors, then tiers, random, compiled, kernels"),
    ("cpp/backend", "PyTorch's device contract: allocator, guard, hooks, generator"),
    ("cpp/memory", "the caching allocator: blocks, segments, pools, statistics"),
    ("cpp/runtime", "the emulated device: memory, streams, events, commands"),
]
# What PyTorch calls in a layer.
ASKS = {
    0: ("import torch", "the entry point, torch.openreg"),
    2: ("torch.distributed", "c10d::Backend"),
    3: ("dispatcher", "operators, by the key PrivateUse1"),
    4: ("guards, hooks, storages", "devices, streams, memory, errors"),
}
GROUPS = [(0, 0, "Python"), (1, 1, "_C"), (2, 6, "libtorch_openreg.so"), (5, 6, "no torch")]


def draw() -> str:
    """The picture."""
    y_of = [TOP + STEP * number for number in range(len(LAYERS))]
    parts = [
        text(TORCH, TOP - 26, "PyTorch calls", "head"),
        text(LEFT, TOP - 26, "torch_openreg: each layer uses those below it", "head"),
    ]
    for y, (name, does) in zip(y_of, LAYERS, strict=True):
        parts.append(box("ours", LEFT, y, BOX_WIDTH, HEIGHT, name, does))
    for number, (name, what) in ASKS.items():
        y = y_of[number]
        parts.append(box("torch", TORCH, y, TORCH_WIDTH, HEIGHT, name, what))
        parts.append(arrow((TORCH + TORCH_WIDTH, y + HEIGHT / 2), (LEFT - 3, y + HEIGHT / 2)))
    for first, last, name in GROUPS:
        x = LEFT + BOX_WIDTH + (12 if name != "no torch" else 80)
        top, bottom = y_of[first] + 4, y_of[last] + HEIGHT - 4
        parts.append(f'<path class="arrow" d="M {x} {top} h 6 V {bottom} h -6"/>')
        middle = (top + bottom) / 2
        label_x = x + 20
        if last > first:
            place = f'transform="translate({label_x} {middle:g}) rotate(90)"'
            parts.append(f'<text class="name" text-anchor="middle" {place}>{name}</text>')
        else:
            parts.append(text(x + 14, middle + 4, name, "name"))
    kernels, ops = y_of[5], y_of[3] + HEIGHT - 8
    parts.append(
        box("torch", TORCH, kernels, TORCH_WIDTH, HEIGHT, "at::cpu, at::native", "the CPU's kernels, called by ops")
    )
    turn = TORCH + TORCH_WIDTH + 25
    parts.append(arrow((LEFT, ops), (turn, ops), (turn, kernels + 27), (TORCH + TORCH_WIDTH + 3, kernels + 27)))
    return picture("The layers of torch_openreg", WIDTH, y_of[-1] + HEIGHT + 16, parts)
