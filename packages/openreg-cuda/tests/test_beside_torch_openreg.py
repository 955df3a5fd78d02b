"""Both packages in one environment: a process has one of the two devices."""

from __future__ import annotations

import importlib.util

import pytest
from child_processes import run_python

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch_openreg") is None, reason="torch_openreg is not installed beside openreg-cuda"
)


@pytest.mark.parametrize(
    ("openreg_cuda", "device"), [("1", "cuda"), ("a100", "cuda"), ("0", "openreg"), ("", "openreg")]
)
def test_the_environment_chooses(openreg_cuda: str, device: str) -> None:
    created = "x = torch.ones(2, device=torch.accelerator.current_accelerator())"
    result = run_python("-c", f"import torch; {created}; print(x.sum().item(), x.device)", OPENREG_CUDA=openreg_cuda)
    assert result.stdout.split() == ["2.0", f"{device}:0"], result.stderr


def test_the_other_is_refused() -> None:
    result = run_python("-c", "import torch, torch_openreg", OPENREG_CUDA="1")
    assert result.returncode != 0 and "openreg-cuda" in result.stderr.splitlines()[-1], result.stderr
