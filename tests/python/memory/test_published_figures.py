"""Programs whose GPU memory others have published need as much here, and run out of memory where theirs did."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.any_device,
    pytest.mark.no_executor("nothing computes"),
    pytest.mark.full,
    pytest.mark.timeout(1200),
]

FOLDER = Path(__file__).parents[2] / "fidelity"
IDLE = {"TORCH_OPENREG_COMPUTE": "0"}


@pytest.mark.parametrize("programs", ["layers|convolutions", "GPT-2", "ViT", "Llama 6M", "Llama 8B", "Llama 7B"])
def test_programs_need_what_is_published(programs):
    ran = subprocess.run([sys.executable, FOLDER / "figures.py", programs], capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


# awslabs/awsome-distributed-ai#220: 70B, AdamW, FSDP1 on GPUs of 1,280 GiB together.
OUT_OF_MEMORY = f"""
import sys, traceback
sys.path.insert(0, {str(FOLDER)!r})
import dataclasses, torch, llama
try:
    llama.train(dataclasses.replace(llama.SEVENTY_BILLION, fsdp1=True))
except torch.OutOfMemoryError as error:
    print(traceback.extract_tb(error.__traceback__)[-1].line)
"""


def test_a_program_that_does_not_fit_fails_in_the_operator_that_is_published(run_python):
    settings = {"TORCH_OPENREG_FAKE_WORLD": "16", "TORCH_OPENREG_MEMORY": "81008MiB", "OPENREG_CUDA": "h100"}
    ran = run_python(OUT_OF_MEMORY, timeout=600, **IDLE, **settings)
    assert ran.stdout.splitlines()[-1].endswith("torch._foreach_sqrt(device_exp_avg_sqs)")


@pytest.mark.alone("it measures time")
@pytest.mark.openreg_only("the command of openreg-cuda is the same")
def test_a_large_model_on_many_ranks_is_reported_in_a_minute(tmp_path):
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "torch_openreg", "fits", "--profile=h100", f"--json={report}", FOLDER / "llama.py"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"TORCH_OPENREG_FAKE_WORLD": "64"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert ran.returncode == 0, ran.stderr
    (process,) = json.loads(report.read_text())["reports"]
    assert process["steps"] == 3
    assert process["host"] < 2 << 30
    # The processor's time: other programs may be running.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 60
