"""Building CUDA C++ ends in one sentence, with NVIDIA's compiler on the machine and without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

KERNEL = "__global__ void k() {}"
FUNCTION = "torch::Tensor f(torch::Tensor x) { return x; }"
SENTENCE = (
    r"openreg: the extension '\w+' needs a GPU: programs in CUDA C\+\+ or PTX cannot be compiled or run on the CPU$"
)
LINKED = r"openreg: the extension '\w+' needs a GPU: it would be linked with CUDA's libraries; CppExtension .*$"


@pytest.fixture(params=["with a compiler", "without a compiler"])
def toolkit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """The environment of a machine with NVIDIA's toolkit, or without."""
    home = None
    if request.param == "with a compiler":
        nvcc = tmp_path / "cuda/bin/nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text("#!/bin/sh\necho Cuda compilation tools, release 13.0, V13.0.48\n")
        nvcc.chmod(0o755)
        home = str(tmp_path / "cuda")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", home)
    environment = {name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "CUDA_PATH")}
    environment["PATH"] = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    return environment | ({"CUDA_HOME": home} if home else {})


@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize("suffix", [".cu", ".cuh"])
def test_sources_that_are_loaded(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / f"kernel{suffix}"
    source.write_text(KERNEL)
    for sources in ([str(source)], [str(tmp_path / "main.cpp"), str(source)], str(source)):
        with pytest.raises(NotImplementedError, match=SENTENCE):
            cpp_extension.load("ours", sources, build_directory=str(tmp_path))
    with pytest.raises(NotImplementedError, match=SENTENCE):
        cpp_extension.load("ours", [str(source)], build_directory=str(tmp_path), is_python_module=False)


@pytest.mark.usefixtures("toolkit")
def test_sources_in_the_program(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=SENTENCE):
        cpp_extension.load_inline("ours", FUNCTION, cuda_sources=KERNEL, functions=["f"], build_directory=str(tmp_path))
    with pytest.raises(NotImplementedError, match=LINKED):
        cpp_extension.load_inline("ours", FUNCTION, functions=["f"], with_cuda=True, build_directory=str(tmp_path))


@pytest.mark.usefixtures("toolkit")
def test_extensions_of_setuptools() -> None:
    with pytest.raises(NotImplementedError, match=SENTENCE):
        cpp_extension.CUDAExtension("ours", ["a.cpp", "b.cu"])
    with pytest.raises(NotImplementedError, match=LINKED):
        cpp_extension.CUDAExtension("ours", ["a.cpp"])


@pytest.mark.parametrize(
    "extension", ["CUDAExtension('ours', ['a.cu'])", "CppExtension('ours', ['a.cu'])", "Extension('ours', ['a.cu'])"]
)
@pytest.mark.parametrize("ninja", [True, False])
def test_a_package_that_is_built(toolkit: dict[str, str], tmp_path: Path, extension: str, ninja: bool) -> None:
    (tmp_path / "a.cu").write_text(KERNEL)
    (tmp_path / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension\n"
        f"build = BuildExtension.with_options(use_ninja={ninja})\n"
        f"setup(name='ours', ext_modules=[{extension}], cmdclass={{'build_ext': build}})\n"
    )
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    result = subprocess.run(command, cwd=tmp_path, env=toolkit, capture_output=True, text=True)
    assert result.returncode != 0
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("NotImplementedError: openreg: the extension 'ours' needs a GPU: "), result.stderr


def test_cpp_is_compiled_as_ever(tmp_path: Path) -> None:
    module = cpp_extension.load_inline("ours", FUNCTION, functions=["f"], build_directory=str(tmp_path))
    x = torch.ones(2, device="cuda")
    assert module.f(x) is not None and torch.equal(module.f(x), x)
