"""The devices that PyTorch's tests run on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from expected_cuda import EXPECTED_ON_CUDA

from expected import EXPECTED

_GENERIC = """test_torch test_nn test_autograd test_ops test_view_ops test_indexing test_scatter_gather_ops
test_tensor_creation_ops test_sparse test_linalg test_dlpack test_foreach test_optim test_modules test_dataloader
test_serialization test_nestedtensor test_transformers test_accelerator""".split()
_OF_CUDA = """test_cuda test_cuda_multigpu test_cuda_sanitizer test_cuda_trace test_cuda_primary_ctx
test_cuda_nvml_based_avail""".split()


@dataclass(frozen=True)
class Target:
    """A device: its name, and what a process needs to have it."""

    name: str
    classes: str  # a pattern of what ends the names of generic classes for it
    variables: dict[str, str]
    files: list[str]  # those that are run by default
    expected: dict[str, dict[str, str]]  # the tests that may fail

    def on_cpu(self, test: str) -> str:
        """The same test for the CPU: TestTorchDeviceTypePRIVATEUSE1::test_add_openreg_float32, or without a device."""
        class_name, function = test.split("::", 1)
        generic = re.sub(f"({self.classes})$", "CPU", class_name)
        return f"{generic}::{re.sub(f'_{self.name}(?=_|$)', '_cpu', function)}"


OPENREG = Target("openreg", "PRIVATEUSE1|OPENREG", {}, _GENERIC, EXPECTED)
# Files for CUDA only expect CUDA's sentences: of an error, the type is compared.
CUDA = Target("cuda", "CUDA", {"OPENREG_CUDA": "1", "UPSTREAM_SENTENCES": "own"}, _OF_CUDA, EXPECTED_ON_CUDA)
CPU = Target("cpu", "CPU", {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, [], {})
