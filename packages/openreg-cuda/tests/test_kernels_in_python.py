"""Kernels for a GPU that are written in Python: PyTorch's own are left out, and those of a program are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from child_processes import run_python

# What PyTorch asks for before it replaces operators: packages that can be found, of a version that it knows.
PACKAGES = {
    "triton": ("triton", "3.6.0"),
    "cutlass": ("nvidia_cutlass_dsl", "4.5.2"),
    "tvm_ffi": ("apache_tvm_ffi", "0.1"),
    "nvmath": ("nvmath_python", "0.9"),
}

DRIVER = """
def _create_driver():
    raise AssertionError("libcuda.so cannot found!")

class Config:
    @property
    def active(self):
        return _create_driver()

driver = Config()
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A directory with packages that have names and versions, and a driver that finds no GPU."""
    for module, (name, version) in PACKAGES.items():
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").touch()
        metadata = tmp_path / f"{name}-{version}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (tmp_path / "nvmath/bindings.py").touch()
    runtime = tmp_path / "triton/runtime"
    runtime.mkdir()
    (runtime / "__init__.py").touch()
    (runtime / "driver.py").write_text(DRIVER)
    return tmp_path


@pytest.mark.parametrize("profile", ["1", "h100"])
def test_operators_are_not_replaced_by_kernels_in_python(packages: Path, profile: str) -> None:
    program = """
import torch
from torch._native import registry
assert registry._graphs, "PyTorch has no such kernels in this version"
overrides = getattr(registry, "_override_libs", None)  # since torch 2.15
overrides = registry._aten_override_libs if overrides is None else overrides
assert not overrides, overrides.keys()
for a, b in ((torch.randn(2, 3, 1), torch.randn(2, 1, 4)), (torch.randn(2, 3, 4), torch.randn(2, 4, 4))):
    assert torch.equal(torch.bmm(a.cuda(), b.cuda()).cpu(), torch.bmm(a, b))
x = torch.randn(8, 1024).cuda()
rms_norm = torch.nn.functional.rms_norm
torch.testing.assert_close(rms_norm(x, (1024,)).cpu(), rms_norm(x.cpu(), (1024,)))
assert torch.equal(x.topk(8).values.cpu(), x.cpu().topk(8).values)
matrices = [torch.randn(16, 16, dtype=torch.bfloat16) for _ in range(3)]
products = torch._foreach_mm([each.cuda() for each in matrices], [each.cuda() for each in matrices])
assert all(torch.equal(product.cpu(), each @ each) for product, each in zip(products, matrices))
assert not torch.backends.python_native.triton.available
print("passed")
"""
    result = run_python("-W", "error", "-c", program, path=packages, OPENREG_CUDA=profile)
    assert result.stdout == "passed\n", result.stderr


@pytest.mark.parametrize("imported", ["before", "after"])
def test_tritons_driver_is_refused_with_the_way_out(packages: Path, imported: str) -> None:
    lines = ["import triton.runtime.driver", "import torch"]
    program = "\n".join([*(lines if imported == "before" else reversed(lines)), "triton.runtime.driver.driver.active"])
    result = run_python("-c", program, path=packages)
    assert result.returncode == 1
    expected = "RuntimeError: openreg: Triton compiles kernels for a GPU, and this device is emulated on the CPU"
    assert expected in result.stderr and "TRITON_INTERPRET=1" in result.stderr


KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def add(x, y, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)

x, y = torch.randn(2, 1000, device="cuda")
out = torch.empty_like(x)
add[(triton.cdiv(1000, 256),)](x, y, out, 1000, BLOCK=256)
assert torch.equal(out, x + y)
print("passed")
"""


@pytest.mark.full
def test_a_kernel_in_triton_runs_in_its_interpreter_only(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    program = tmp_path / "program.py"  # Triton reads a kernel's source
    program.write_text(KERNEL)
    assert run_python(program, TRITON_INTERPRET="1").stdout == "passed\n"
    assert "set TRITON_INTERPRET=1" in run_python(program).stderr


@pytest.mark.full
def test_triton_has_what_is_replaced_there() -> None:
    driver = pytest.importorskip("triton.runtime.driver", reason="Triton is not installed")
    assert driver._create_driver.__module__ == "openreg_cuda._patches"
    with pytest.raises(RuntimeError, match="Triton compiles kernels for a GPU"):
        driver.driver.active.get_current_target()
    assert torch.cuda.is_available()
