"""What programs observe of the device is what they observe of a GPU: `tests/fidelity/observe.py`, run on both.

The GPU's answers are in `tests/fidelity/cuda.json`, with its name and PyTorch's version. Each difference has its reason
here.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from devices import DEVICE

FIDELITY = Path(__file__).parents[2] / "fidelity"

WORDING = "the same type of error; the text is the CPU's, or says more"
DIFFERENCES: dict[str, str] = {
    "error.(mixed_(mm|cat|where|embedding|linear)|dtype_mm|bool_mm|histc_minmax)": WORDING,
    "error.(oom_type|fraction|props_99|set_rng_short|pin_device|record_stream_cpu)": WORDING,
    "error.(bad_index|set_device_99)": "a RuntimeError, as of other devices; CUDA's AcceleratorError is one, too",
    "error.int_mm": "the CPU's kernel has products of integers",
    "error.int_div_zero": "the CPU's kernel finds the error, and it is one of the stream",
    "error.dlpack_numpy": "NumPy's own error, which depends on its version",
    "memory.stat_keys": "num_oom_rejections is of torch 2.13",
    "type.channels_last": "cuDNN chose another layout than the CPU's convolution",
    "fork.(get_sync_debug_mode|is_bf16_supported)": "these answer without the device",
    "fork.(Stream|Generator|pin_memory)": "all calls of a forked child have the same error; CUDA's have two",
}
ULPS = 32  # of random numbers that are computed by logarithms and sines


def observe(tmp_path: Path) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, FIDELITY / "observe.py", DEVICE], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr
    observations: dict[str, Any] = json.loads(run.stdout)["observations"]
    return observations


def agree(name: str, here: Any, there: Any) -> bool:
    if name.startswith("random.") and isinstance(here, list):
        return len(here) == len(there) and all(agree(name, *each) for each in zip(here, there, strict=True))
    if name.startswith("random.") and isinstance(here, int):
        return abs(here - there) <= ULPS
    if name == "error.shape_mm":  # since 2.15 the text begins with the operator's name
        here = here.replace(" mm: ", " ", 1)
    return bool(here == there)


@pytest.mark.needs_engines("a query would run the work that it asks about")
@pytest.mark.no_race_detection("it observes what programs that race do")
def test_observations_are_those_of_a_gpu(tmp_path):
    there = json.loads((FIDELITY / "cuda.json").read_text())["observations"]
    here = observe(tmp_path)
    assert set(here) == set(there)
    differing = {name for name in there if not agree(name, here[name], there[name])}
    expected = {name for name in there if any(re.fullmatch(pattern, name) for pattern in DIFFERENCES)}
    unexpected = {name: (here[name], there[name]) for name in differing - expected}
    assert unexpected == {}
    assert expected - differing <= {"error.dlpack_numpy"}  # the list has no more than it needs
