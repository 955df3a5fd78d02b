"""Draws the pictures of the documents that need no measurement, light and dark in one file each.

python tools/pictures [FOLDER]     by default docs
"""

from __future__ import annotations

import sys
from pathlib import Path

import add
import layers
import race
import stream_states
import windows

PICTURES = {
    "device/add.svg": add.draw,
    "layers.svg": layers.draw,
    "race.svg": race.draw,
    "stream-states.svg": stream_states.draw,
    "windows.svg": windows.draw,
}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "docs"
    for name, draw in PICTURES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(draw())
