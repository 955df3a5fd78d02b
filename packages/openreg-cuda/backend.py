"""The build backend of torch_openreg, tools/build_backend.py, which lies outside of what a backend-path may name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from build_backend import *  # noqa: F403
from build_backend import build_state as build_state, dynamic_metadata as dynamic_metadata
