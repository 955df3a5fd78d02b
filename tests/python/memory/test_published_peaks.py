"""Without computing, programs have the peaks that GPUs had, to the byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from devices import DEVICE, OPENREG
from published_programs import PEAKS

pytestmark = [pytest.mark.any_device, pytest.mark.no_executor("nothing computes")]

ROUNDED_ABOVE = 16384  # MiB: the published numbers went through float32

PROGRAM = """
import json, sys
sys.path.insert(0, FOLDER)
import torch
import published_programs as programs
if DEVICE == "cuda":
    clear = torch._C._cuda_clearCublasWorkspaces
else:
    from torch_openreg import _C
    _C.set_gpu(*CAPABILITY)
    clear = _C.clear_blas_workspaces
print(json.dumps(programs.measure(GPU, DEVICE, clear)))
"""
CAPABILITIES = {"a100": (8, 0, 108, 2048), "rtx4090": (8, 9, 128, 1536)}


@pytest.mark.parametrize("gpu", PEAKS)
def test_published_peaks_are_met_to_the_byte(run_python, gpu):
    values = {
        "FOLDER": str(Path(__file__).parent),
        "DEVICE": DEVICE,
        "GPU": gpu,
        "CAPABILITY": CAPABILITIES[gpu],
    }
    code = PROGRAM
    for name, value in values.items():
        code = code.replace(name, repr(value))
    variables = {"OPENREG_CUDA": gpu} if DEVICE != OPENREG else {}
    ran = run_python(code, TORCH_OPENREG_COMPUTE="0", TORCH_OPENREG_MEMORY="80GiB", **variables)
    found = json.loads(ran.stdout.splitlines()[-1])
    for name, sizes in PEAKS[gpu].items():
        for size, published in sizes.items():
            tolerance = 0 if published < ROUNDED_ABOVE else 1e-3
            assert abs(found[f"{name} {size}"] - published) <= tolerance, f"{name} {size}"
