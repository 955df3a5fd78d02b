"""``openreg-cuda fits``: a program written for CUDA is measured as on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from child_processes import run_python

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
WEIGHT = (4 * 40_000 * 40_000 + (2 << 20) - 1) >> 21 << 21  # a segment of its own, whose rest is not split off
MIB = 1 << 20


def fits(folder: Path, program: str, *options: str, **variables: str | None) -> CompletedProcess[str]:
    (folder / "train.py").write_text(program)
    command = ["-m", "openreg_cuda", "fits", "--json", "report.json", *options, "train.py"]
    return run_python(*command, cwd=folder, **{"OPENREG_CUDA": None, **variables})


def report_of(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The report of the only process, and the verdict on the only GPU."""
    data = json.loads((folder / "report.json").read_text())
    (report,), (verdict,) = data["reports"], data["verdicts"]
    return report, verdict


def test_a_program_sees_the_gpu_and_its_memory(tmp_path: Path) -> None:
    done = fits(tmp_path, PROGRAM, "--profile", "h100:4", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert "NVIDIA H100 80GB HBM3 4 81008\n" in done.stderr
    assert done.stdout.startswith("fits on h100\n")
    report, verdict = report_of(tmp_path)
    (device,) = report["devices"]
    assert device["kinds"]["parameters"] == device["kinds"]["gradients"] == WEIGHT
    assert device["kinds"]["optimizer state"] == 2 * WEIGHT
    assert device["held"] == device["allocated"] == sum(device["kinds"].values())
    assert verdict["nccl"] == 0 and device["convolution"] == 0


def test_a_program_that_does_not_fit_says_where(tmp_path: Path) -> None:
    done = fits(tmp_path, PROGRAM, "--profile", "t4")
    assert done.returncode == 1, done.stderr
    # Parameters, gradients, the first of two states, and workspaces.
    where = "in the optimizer of step 1 (train.py:9 in <module>)"
    assert done.stdout.startswith(f"does not fit on t4: peak 17.90 of 14.17 GiB {where}\n")


RANK = """
import torch
import torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(0)
layer = torch.nn.Linear(4096, 4096, bias=False, device="cuda")
model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[0])
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(10):
    model(torch.randn(8, 4096, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""


def test_a_rank_of_nccl_leaves_room_for_its_buffers(tmp_path: Path) -> None:
    done = fits(tmp_path, RANK, "--profile", "h100:8", TORCH_OPENREG_FAKE_WORLD="8")
    assert done.returncode == 0, done.stderr
    assert "(assumed), NCCL's buffers about 976.00 MiB\n" in done.stdout
    report, verdict = report_of(tmp_path)
    (device,) = report["devices"]
    assert device["communicators"] == [{"ranks": 8, "collectives": True, "peers": 0}]
    assert verdict["nccl"] == 976 * MIB and verdict["usable"] == (81008 - 595 - 976) * MIB
    # DistributedDataParallel keeps gradients in its buckets.
    assert device["kinds"]["gradients"] == device["kinds"]["parameters"]


CALLS = """
import torch
from torch import nn
model = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.BatchNorm2d(64), nn.AdaptiveAvgPool2d(1), nn.Flatten()).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
scaler = torch.amp.GradScaler("cuda")
x = torch.randn(16, 8, 256, 256, device="cuda")
for _ in range(3):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).float().square().mean()
    print("loss", loss)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    model(x)
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph), torch.no_grad():
    y = model(x)
graph.replay()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
assert stats["reserved_bytes.all.current"] == torch.cuda.memory_reserved() == sum(
    segment["total_size"] for segment in torch.cuda.memory_snapshot()
)
print("scale", scaler.get_scale(), "end")
"""


def test_a_program_full_of_calls_of_cuda_runs_to_its_end(tmp_path: Path) -> None:
    done = fits(tmp_path, CALLS, "--profile", "a100", "--steps", "9")
    assert done.returncode == 0, done.stderr
    assert "loss tensor(0., device='cuda:0', grad_fn=<MeanBackward0>)\n" in done.stderr
    assert "scale 65536.0 end\n" in done.stderr
    report, _ = report_of(tmp_path)
    (device,) = report["devices"]
    # At the peak a convolution may take copies of its tensors in float32: the input, the weight, the result.
    assert 0 < device["convolution"] <= 4 * (16 * 8 * 256 * 256 + 2 * 16 * 64 * 256 * 256 + 3 * 64 * 8 * 9)
    assert "unknown   cuDNN's workspaces for convolutions: they raise the peak by 0 to about " in done.stdout
    assert "workspace of cuDNN (native_batch_norm, ...), in " in done.stdout


OF_A_TEST = """
import openreg_cuda
import pytest
import torch


def test_in_a_block():
    with openreg_cuda.fits("t4") as report:
        torch.empty(1 << 20, device="cuda")
    assert report.fits and report.device.kinds == {"inputs and other data": 4 << 20}


@pytest.mark.openreg_fits("t4")
def test_that_fits():
    torch.empty(1 << 20, device="cuda")


@pytest.mark.openreg_fits("t4")
def test_that_does_not():
    torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
"""


def test_tests_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("pytest_openreg", reason="pytest-openreg is not installed; pip install packages/pytest-openreg")
    (tmp_path / "test_it.py").write_text(OF_A_TEST)
    command = ["-m", "pytest", "-p", "no:cacheprovider", "--openreg-cuda", "-q", "test_it.py"]
    done = run_python(*command, cwd=tmp_path, OPENREG_CUDA="h100", TORCH_OPENREG_COMPUTE="0")
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "does not fit on t4: peak 20.00 of 14.17 GiB" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--profile", "mi300x", "train.py"], "openreg: --profile is malformed (got 'mi300x', expected one of t4, "),
        (["absent.py"], "openreg: the program does not exist (got 'absent.py', "),
    ],
)
def test_wrong_use_is_one_sentence(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run_python("-m", "openreg_cuda", "fits", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(message)
