"""What the slot needs of PyTorch, compared with its headers: also of versions that cannot run here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from torch_sources import UNBUILT_VERSIONS, unpacked

PROJECT = Path(__file__).parents[3]
SLOT = PROJECT / "cpp/slot/cuda"
FOLDERS = (SLOT, PROJECT / "cpp/cuda")

# The virtual functions of PyTorch's hooks that the slot does not override, and why what they do by default is right.
DEFAULT_HOOKS = {
    **dict.fromkeys(
        (
            "batchnormMinEpsilonCuDNN",
            "compiledWithCuDNN",
            "hasCuDNN",
            "supportsBFloat16ConvolutionWithCuDNNv8",
            "supportsBFloat16RNNWithCuDNN",
            "supportsDepthwiseConvolutionWithCuDNN",
            "supportsDilatedConvolutionWithCuDNN",
            "versionCuDNN",
            "versionCuDNNFrontend",
            "versionRuntimeCuDNN",
        ),
        "there is no cuDNN",
    ),
    **dict.fromkeys(
        (
            "compiledWithMIOpen",
            "getHipblasltPreferredArchs",
            "getHipblasltSupportedArchs",
            "hasCKGEMM",
            "hasCKSDPA",
            "hasROCM",
            "isGPUArch",
            "versionHipBLASLt",
            "versionMIOpen",
        ),
        "ROCm's",
    ),
    **dict.fromkeys(("hasCUDART", "nvrtc", "versionCUDART"), "NVIDIA's runtime and compiler are not there"),
}


@pytest.fixture(
    scope="module", params=["installed", *(pytest.param(each, marks=pytest.mark.full) for each in UNBUILT_VERSIONS)]
)
def torch_root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = unpacked(request.param, tmp_path_factory.mktemp("torch"))
    if root is None:
        pytest.skip(f"pip finds no wheel of torch {request.param} here")
    return root


def test_the_slot_compiles(torch_root: Path, tmp_path: Path) -> None:
    headers = torch_root / "torch/include"
    source = tmp_path / "slot.cpp"
    # The bindings also need nanobind, and of PyTorch its classes and storages in Python.
    bindings = ("bindings", "dlpack_exchange", "graph_trees")
    files = [each for folder in FOLDERS for each in folder.iterdir() if each.suffix in (".h", ".cpp")]
    files = [each for each in files if each.stem not in bindings]
    source.write_text("".join(f'#include "{file}"\n' for file in sorted(files, reverse=True)))
    ours = (PROJECT, PROJECT / "cpp", SLOT)
    theirs = (headers, headers / "torch/csrc/api/include", headers / "kineto")
    command = ["g++", "-std=c++20", "-fsyntax-only", "-DAT_PER_OPERATOR_HEADERS", "-DUSE_KINETO"]
    command += [f"-I{path}" for path in ours]
    command += [argument for path in theirs for argument in ("-isystem", str(path))]
    result = subprocess.run([*command, source], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_each_hook_of_pytorch_is_answered(torch_root: Path) -> None:
    hooks: set[str] = set()
    for interface in ("CUDAHooksInterface", "AcceleratorHooksInterface"):
        header = (torch_root / f"torch/include/ATen/detail/{interface}.h").read_text()
        hooks |= set(re.findall(r"\bvirtual\s[^;{(]*?\b(\w+)\s*\(", re.sub(r"//.*", "", header))) - {interface}
    ours: set[str] = set()
    for file in (SLOT / "slot_hooks.h", PROJECT / "cpp/backend/hooks.cpp"):
        ours |= set(re.findall(r"\b(\w+)\([^;{)]*\)\s*const override", file.read_text()))
    assert len(ours) > 20  # the pattern finds them
    assert hooks - ours == set(DEFAULT_HOOKS)
