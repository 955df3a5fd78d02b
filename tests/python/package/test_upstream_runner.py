"""`tests/upstream/run.py`, on a folder with one small file of device-generic tests, one of each sort."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("expecttest", reason="torch's own test utilities need expecttest")

RUN = Path(__file__).resolve().parents[2] / "upstream" / "run.py"

TESTS = """
import os, time
import pytest
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase, run_tests

class TestLittle(TestCase):
    def test_passes(self, device):
        self.assertEqual(torch.ones(2, device=device).sum().item(), 2)

    def test_skips(self, device):
        self.skipTest("for a reason")

    def test_fails_everywhere(self, device):
        self.assertEqual(1, 2)

    def test_is_expected_to_fail_on_the_cpu(self, device):
        if device == "cpu":
            pytest.xfail("as OpInfos have it, by a decorator")
        self.assertEqual(1, 2)

    def test_names_cuda(self, device):
        if device != "cpu":
            torch.ones(2, device="cuda")

    def test_fails_here(self, device):
        self.assertEqual(torch.device(device).type, "cpu")

    def test_kills_the_process(self, device):
        if device != "cpu":
            os.abort()

    def test_takes_too_long(self, device):
        if device != "cpu":
            time.sleep(1000)

    def test_expects_the_error_at_the_call(self, device):
        with self.assertRaises(Exception):
            torch.ones(2, device=device).index_select(0, torch.tensor([5], device=device))
        if device != "cpu":
            torch.accelerator.synchronize()

instantiate_device_type_tests(TestLittle, globals(), only_for=("cpu", "openreg"))
if __name__ == "__main__":
    run_tests()
"""


@pytest.mark.full
def test_failures_are_sorted_and_a_crash_does_not_end_the_run(tmp_path):
    (tmp_path / "test_little.py").write_text(TESTS)
    output = tmp_path / "results.json"
    run = subprocess.run(
        [sys.executable, RUN, tmp_path, "test_little", "--seconds", "6", "--json", output],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert output.exists(), run.stderr
    found = {
        result["name"].split("::test_")[1].removesuffix("_openreg"): (result["outcome"], result["kind"])
        for result in json.loads(output.read_text())
    }
    assert found == {
        "passes": ("passed", ""),
        "skips": ("skipped", ""),
        "fails_everywhere": ("failed", "fails on the CPU too"),
        "is_expected_to_fail_on_the_cpu": ("failed", "fails on the CPU too"),
        "names_cuda": ("failed", "names a device"),
        "fails_here": ("failed", "ours"),
        "kills_the_process": ("crashed", "ours"),
        "takes_too_long": ("crashed", "ours"),
        "expects_the_error_at_the_call": ("failed", "asynchronous"),
    }
    assert run.returncode == 1
    reported = Counter(line.split(": ")[1] for line in run.stdout.splitlines() if "::" in line)
    assert reported == {"ours": 3, "asynchronous": 1}


OF_A_GPU = """
import unittest
import torch
from torch._functorch.partitioners import no_longer_there
import torch._inductor.metrics
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.inductor_utils import GPU_TYPE, requires_gpu

class GPUTests(TestCase):
    @requires_gpu()
    def test_passes(self):
        self.assertEqual(torch.ones(2, device=GPU_TYPE).device.type, GPU_TYPE)

    @no_longer_there
    def test_skips(self):
        self.fail()

    def test_fails_everywhere(self):
        self.assertEqual(torch.ones(2, device=GPU_TYPE).device.type, "cuda")

    def test_names_code(self):
        self.assertIn("x" if torch.device(GPU_TYPE).type == "cpu" else "triton_poi", "x")

    def test_counts_kernels(self):
        torch._inductor.metrics.generated_kernel_count = int(torch.device(GPU_TYPE).type == "openreg")
        self.assertEqual(
            torch._inductor.metrics.generated_kernel_count, 0
        )

    def test_fails_here(self):
        self.assertEqual(torch.ones(2, device=GPU_TYPE).device.type, "cpu")
"""

# As a vendor's copy has it.
OF_A_VENDOR = OF_A_GPU.replace(
    "class GPUTests",
    """import torch_npu
GPU_TYPE = f"npu"

@unittest.skipIf(not torch.npu.is_available(), "requires npu")
class NPUTests""",
)


@pytest.mark.full
@pytest.mark.parametrize(("option", "text"), [(["--gpu"], OF_A_GPU), (["--vendor", "npu"], OF_A_VENDOR)])
def test_files_that_name_a_gpu_are_directed(tmp_path, option, text):
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled" / "test_little.py").write_text(text)
    output = tmp_path / "results.json"
    command = [sys.executable, RUN, tmp_path, "compiled/test_little", *option, "--minutes", "9", "--json", output]
    run = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert output.exists(), run.stderr
    found = {
        result["name"].split("::test_")[1]: (result["outcome"], result["kind"])
        for result in json.loads(output.read_text())
    }
    assert found == {
        "passes": ("passed", ""),
        "skips": ("skipped", ""),
        "fails_everywhere": ("failed", "fails on the CPU too"),
        "names_code": ("failed", "names Triton's code"),
        "counts_kernels": ("failed", "counts Triton's kernels"),
        "fails_here": ("failed", "ours"),
    }
