"""Both packages in one environment: a process has one of the two devices."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_openreg") is None, reason="torch_openreg is not installed beside openreg-cuda"
)


def run(source: str, openreg_cuda: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OPENREG_CUDA": openreg_cuda}
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, env=environment)


@pytest.mark.parametrize(
    ("openreg_cuda", "device"), [("1", "cuda"), ("a100", "cuda"), ("0", "openreg"), ("", "openreg")]
)
def test_the_environment_chooses(openreg_cuda: str, device: str) -> None:
    created = "x = torch.ones(2, device=torch.accelerator.current_accelerator())"
    result = run(f"import torch; {created}; print(x.sum().item(), x.device)", openreg_cuda)
    assert result.stdout.split() == ["2.0", f"{device}:0"], result.stderr


def test_the_other_is_refused() -> None:
    result = run("import torch, torch_openreg", "1")
    assert result.returncode != 0 and "openreg-cuda" in result.stderr.splitlines()[-1], result.stderr
