"""Kernels for CUDA in other libraries are never called, however the library was loaded."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
from child_processes import run_python

SOURCE = r"""
#include <ATen/ATen.h>
#include <Python.h>
#include <torch/library.h>

at::Tensor twice(const at::Tensor& x) { return x * 2; }
at::Tensor nothing(const at::Tensor& x) { return at::empty({0}, x.options()); }

TORCH_LIBRARY(NAME, m) {
  m.def("twice(Tensor x) -> Tensor");
  m.def("only_cuda(Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(NAME, CPU, m) { m.impl("twice", &twice); }
TORCH_LIBRARY_IMPL(NAME, CUDA, m) {
  m.impl("twice", &nothing);
  m.impl("only_cuda", &nothing);
}
#ifdef OVERRIDES
TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl("digamma", &nothing); }
#endif

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, MODULE, nullptr, -1};
extern "C" __attribute__((visibility("default"))) PyObject* ENTRY() { return PyModule_Create(&definition); }
"""

WAYS = {
    "load_library": "torch.ops.load_library({path!r})",
    "ctypes": "import ctypes; ctypes.CDLL({path!r})",
    "import": "import sys; sys.path.insert(0, {folder!r}); import {name}",
}


def compile_library(folder: Path, name: str, *flags: str) -> Path:
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(SOURCE)
    root = Path(torch.__file__).parent
    names = [f"-DNAME={name}", f'-DMODULE="{name}"', f"-DENTRY=PyInit_{name}"]
    folders = [f"-I{root}/include", f"-I{root}/include/torch/csrc/api/include", f"-I{sysconfig.get_path('include')}"]
    libraries = [f"-L{root}/lib", "-ltorch_cpu", "-lc10"]
    command = [
        "g++",
        "-std=c++20",
        "-O1",
        "-fPIC",
        "-shared",
        *names,
        *flags,
        *folders,
        str(source),
        "-o",
        str(library),
    ]
    subprocess.run([*command, *libraries], check=True)
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_library(tmp_path_factory.mktemp("foreign"), "foreign", "-DOVERRIDES")


@pytest.mark.parametrize("way", WAYS)
def test_they_are_replaced_before_their_first_call(way: str, library: Path) -> None:
    load = WAYS[way].format(path=str(library), folder=str(library.parent), name=library.stem)
    program = f"""
import torch
{load}
x = torch.arange(4.0, device="cuda")
assert torch.ops.foreign.twice(x).tolist() == [0, 2, 4, 6], torch.ops.foreign.twice(x)
assert torch.digamma(x[1:]).shape == (3,)
try:
    torch.ops.foreign.only_cuda(x)
except NotImplementedError as error:
    assert "foreign::only_cuda has a kernel for CUDA, which needs a GPU" in str(error), error
else:
    raise AssertionError("a kernel for CUDA was called")
"""
    result = run_python("-c", program)
    assert result.returncode == 0, result.stderr


def test_kernels_in_python_are_called() -> None:
    library = torch.library.Library("of_python", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CUDA")
    import _ctypes_test  # noqa: F401  (a library that has not been loaded)

    assert torch.ops.of_python.twice(torch.ones(2, device="cuda")).tolist() == [2, 2]
