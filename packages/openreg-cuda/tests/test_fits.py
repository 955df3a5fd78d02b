"""``openreg-cuda fits``: a program written for CUDA is measured as on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch
print(torch.cuda.get_device_name(), torch.cuda.device_count(), torch.cuda.get_device_properties(0).total_memory >> 20)
model = torch.nn.Linear(40_000, 40_000, bias=False, device="cuda")
optimizer = torch.optim.Adam(model.parameters())
for _ in range(100):
    optimizer.zero_grad()
    model(torch.randn(8, 40_000, device="cuda")).sum().backward()
    optimizer.step()
"""
WEIGHT = 4 * 40_000 * 40_000


def fits(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "openreg_cuda", "fits", "--json", "report.json", *options, "train.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)


def test_a_program_sees_the_gpu_and_its_memory(tmp_path: Path) -> None:
    done = fits(tmp_path, "--profile", "h100:4", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert "NVIDIA H100 80GB HBM3 4 81008\n" in done.stderr
    assert done.stdout.startswith("fits on h100\n")
    (report,) = json.loads((tmp_path / "report.json").read_text())["reports"]
    (device,) = report["devices"]
    assert device["kinds"]["parameters"] == device["kinds"]["gradients"] == WEIGHT
    assert device["kinds"]["optimizer state"] == 2 * WEIGHT
    assert device["held"] == device["allocated"] == sum(device["kinds"].values())


def test_a_program_that_does_not_fit_says_where(tmp_path: Path) -> None:
    done = fits(tmp_path, "--profile", "t4")
    assert done.returncode == 1, done.stderr
    # Parameters, gradients, and the first of two states.
    where = "in the optimizer of step 1 (train.py:9 in <module>)"
    assert done.stdout.startswith(f"does not fit on t4: peak 17.88 of 14.17 GiB {where}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "mi300x", "train.py"], "openreg: --profile is malformed (got 'mi300x', expected one of t4, "),
        (["absent.py"], "openreg: the program does not exist (got 'absent.py', "),
    ],
)
def test_wrong_use_is_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "openreg_cuda", "fits", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
