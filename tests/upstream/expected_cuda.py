"""Which tests of PyTorch's suite may fail on the device of openreg-cuda, as in `expected.py`."""

from __future__ import annotations

EXPECTED_ON_CUDA: dict[str, dict[str, str]] = {}
