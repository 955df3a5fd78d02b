"""PyTorch's device-generic test classes run on openreg: its own decorators, databases and knobs.

The classes here are templates, and pytest finds no test in them: PyTorch makes the tests, and the functions below say
which it has to make, run them, and say what has to come out.
"""

from __future__ import annotations

import unittest
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from devices import DEVICE
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves, tree_map

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_device_type import (
        PrivateUse1TestBase,
        deviceCountAtLeast,
        dtypes,
        dtypesIfCUDA,
        dtypesIfPRIVATEUSE1,
        expectedFailure,
        instantiate_device_type_tests,
        onlyCPU,
        onlyCUDA,
        onlyNativeDeviceTypes,
        onlyPRIVATEUSE1,
        ops,
        skipCUDAIf,
        skipPRIVATEUSE1,
        skipPRIVATEUSE1If,
    )
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db, modules
    from torch.testing._internal.common_utils import TestCase, parametrize
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, DecorateInfo, ReductionOpInfo, UnaryUfuncInfo

SOME_OPS = [
    op
    for op in op_db
    if isinstance(op, (BinaryUfuncInfo, ReductionOpInfo, UnaryUfuncInfo))
    and torch.float32 in op.dtypes
    and not op.name.startswith("jiterator")  # compiles for CUDA
    and zlib.crc32(op.full_name.encode()) % 8 == 0
]
SOME_MODULES = [info for info in module_db if info.name in ("nn.Linear", "nn.Conv2d", "nn.LSTMCell")]


class Template(TestCase):
    __test__ = False  # to pytest


class Generic(Template):
    def test_device(self, device: str) -> None:
        self.assertEqual(device, f"{DEVICE}:0")
        self.assertEqual(torch.ones(2, device=device).device, torch.device(f"{DEVICE}:0"))

    @dtypes(torch.int32, torch.float64)
    def test_dtypes(self, device: str, dtype: torch.dtype) -> None:
        self.assertEqual(torch.arange(5, device=device, dtype=dtype).sum().item(), 10)

    @dtypesIfCUDA(torch.int8)
    @dtypesIfPRIVATEUSE1(torch.float16)
    @dtypes(torch.int16)
    def test_own_dtypes(self, device: str, dtype: torch.dtype) -> None:
        self.assertEqual(torch.zeros(1, device=device, dtype=dtype).dtype, dtype)

    @parametrize("size", [0, 3])
    def test_sizes(self, device: str, size: int) -> None:
        self.assertEqual(torch.ones(size, device=device).sum().item(), size)

    @deviceCountAtLeast(2)
    def test_two_devices(self, devices: list[str]) -> None:
        self.assertEqual(devices, [f"{DEVICE}:0", f"{DEVICE}:1"])
        self.assertEqual(torch.arange(3, device=devices[0]).to(devices[1]).cpu().tolist(), [0, 1, 2])

    @deviceCountAtLeast(3)
    def test_three_devices(self, devices: list[str]) -> None:
        raise AssertionError("there are two")

    @onlyNativeDeviceTypes
    def test_native(self, device: str) -> None:
        pass

    @onlyPRIVATEUSE1
    def test_backend(self, device: str) -> None:
        pass

    @onlyCUDA
    def test_cuda(self, device: str) -> None:
        raise AssertionError("is for CUDA")

    @onlyCPU
    def test_cpu(self, device: str) -> None:
        raise AssertionError("is for the CPU")

    @skipPRIVATEUSE1
    def test_skipped(self, device: str) -> None:
        raise AssertionError("is skipped")

    @skipPRIVATEUSE1If(False, "never")
    @skipCUDAIf(True, "elsewhere")
    def test_not_skipped(self, device: str) -> None:
        pass

    @expectedFailure(DEVICE)
    def test_fails(self, device: str) -> None:
        torch.ones(2, device=device) + torch.ones(3, device=device)


class Databases(Template):
    @ops(SOME_OPS, allowed_dtypes=[torch.float32])
    def test_ops(self, device: str, dtype: torch.dtype, op: Any) -> None:
        def on_cpu(value: Any) -> Any:
            return tree_map(lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf, value)

        samples = list(op.sample_inputs(device, dtype))
        self.assertGreater(len(samples), 0)
        for sample in samples:
            self.assertEqual(sample.input.device, torch.device(device))
            expected = op(on_cpu(sample.input), *on_cpu(sample.args), **on_cpu(sample.kwargs))
            assert_close(on_cpu(op(sample.input, *sample.args, **sample.kwargs)), expected, equal_nan=True)

    @modules(SOME_MODULES, allowed_dtypes=[torch.float32])
    def test_modules(self, device: str, dtype: torch.dtype, module_info: Any, training: bool) -> None:
        inputs = module_info.module_inputs_func
        for sample in inputs(module_info, device=device, dtype=dtype, requires_grad=False, training=training):
            made, given = sample.constructor_input, sample.forward_input
            module = module_info.module_cls(*made.args, **made.kwargs, device=device, dtype=dtype)
            for leaf in tree_leaves(module(*given.args, **given.kwargs)):
                self.assertEqual(leaf.device, torch.device(device))


class ForCUDA(Template):
    @onlyCUDA
    def test_streams(self, device: str) -> None:
        stream = torch.Stream(device)
        x = torch.ones(1000, device=device)
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            y = x * 2
        torch.accelerator.current_stream().wait_stream(stream)
        self.assertEqual(y.sum().item(), 2000)

    @onlyCUDA
    @deviceCountAtLeast(2)
    @dtypes(torch.float32)
    def test_devices(self, devices: list[str], dtype: torch.dtype) -> None:
        with torch.openreg.device(devices[1]):
            self.assertEqual(torch.rand(3, device=DEVICE, dtype=dtype).device, torch.device(devices[1]))


class Configured(Template):
    @ops([op for op in op_db if op.full_name in ("add", "mul", "sub")], allowed_dtypes=[torch.float32])
    def test_ops(self, device: str, dtype: torch.dtype, op: Any) -> None:
        self.assertEqual(op.full_name, "add")

    def test_excluded(self, device: str) -> None:
        raise AssertionError("is excluded")


class Outcomes(unittest.TestResult):
    """What came of each test, by its name: `ok`, or why it was skipped or how it failed."""

    def __init__(self) -> None:
        super().__init__()
        self.by_name: dict[str, str] = {}

    def addSuccess(self, test: Any) -> None:
        self.by_name[test._testMethodName] = "ok"

    def addSkip(self, test: Any, reason: str) -> None:
        self.by_name[test._testMethodName] = f"skipped: {reason}"

    def addFailure(self, test: Any, err: Any) -> None:
        self.by_name[test._testMethodName] = self._exc_info_to_string(err, test)

    addError = addFailure


def instantiated(template: type[Template]) -> type[Template]:
    """The class that PyTorch makes of a template for openreg alone."""
    scope = {template.__name__: template}
    instantiate_device_type_tests(template, scope, only_for="privateuse1")
    assert len(scope) == 1
    return scope.popitem()[1]


def outcomes(cls: type[Template]) -> dict[str, str]:
    result = Outcomes()
    unittest.defaultTestLoader.loadTestsFromTestCase(cls).run(result)
    return result.by_name


# Until the first of its classes is set up, the base calls itself "privateuse1" and finds no dtypes of the backend: the
# tests that PyTorch makes would depend on the order of a set.
PrivateUse1TestBase.setUpClass()
generic, databases, for_cuda = (instantiated(template) for template in (Generic, Databases, ForCUDA))


def test_decorators_choose_devices_dtypes_and_tests():
    assert outcomes(generic) == {
        "test_device_openreg": "ok",
        "test_dtypes_openreg_int32": "ok",
        "test_dtypes_openreg_float64": "ok",
        "test_own_dtypes_openreg_float16": "ok",
        "test_sizes_size_0_openreg": "ok",
        "test_sizes_size_3_openreg": "ok",
        "test_two_devices_openreg": "ok",
        "test_three_devices_openreg": "skipped: fewer than 3 devices detected",
        "test_native_openreg": "ok",
        "test_backend_openreg": "ok",
        "test_cuda_openreg": "skipped: Only runs on cuda",
        "test_cpu_openreg": "skipped: Only runs on cpu",
        "test_skipped_openreg": "skipped: test doesn't work on privateuse1 backend",
        "test_not_skipped_openreg": "ok",
        "test_fails_openreg": "ok",
    }


@pytest.mark.filterwarnings("ignore")
def test_databases_of_operators_and_modules_make_tests_that_pass():
    got = outcomes(databases)
    assert len(SOME_OPS) > 20
    expected = {f"test_ops_{op.formatted_name}_openreg_float32" for op in SOME_OPS}
    expected |= {
        f"test_modules_{info.formatted_name}{mode}_openreg_float32"
        for info in SOME_MODULES
        for mode in (("_train_mode", "_eval_mode") if info.train_and_eval_differ else ("",))
    }
    assert set(got) == expected
    assert {name: outcome for name, outcome in got.items() if outcome != "ok"} == {}


@pytest.mark.parametrize("allowed", [True, False])
def test_tests_for_cuda_run_where_the_class_allows_it(monkeypatch, allowed):
    monkeypatch.setattr(for_cuda, "bypass_device_restrictions", allowed)
    expected = "ok" if allowed else "skipped: Only runs on cuda"
    assert outcomes(for_cuda) == {
        "test_streams_openreg": expected,
        "test_devices_openreg_float32": expected,
    }


@pytest.fixture
def configure() -> Any:
    yield PrivateUse1TestBase.set_test_configs
    PrivateUse1TestBase.set_test_configs()


def test_a_backend_chooses_and_overrides_operators_and_excludes_tests(configure: Callable[..., None]):
    configure(
        test_exclusions={"Configured": ["test_excluded"]},
        op_allowlist=["add", "mul"],
        op_overrides={"mul": [DecorateInfo(unittest.skip("overridden"))]},
    )
    assert outcomes(instantiated(Configured)) == {
        "test_ops_add_openreg_float32": "ok",
        "test_ops_mul_openreg_float32": "skipped: overridden",
    }


def test_openreg_is_tested_beside_the_cpu_or_alone_as_the_environment_selects(monkeypatch):
    def made() -> list[str]:
        template = type("Both", (Template,), {"test_it": lambda self, device: None})
        scope: dict[str, Any] = {"Both": template}
        instantiate_device_type_tests(template, scope)
        assert sum(issubclass(cls, PrivateUse1TestBase) for cls in scope.values()) == 1
        return sorted(scope)

    assert made() == ["BothCPU", "BothOPENREG"]
    monkeypatch.setenv("PYTORCH_TESTING_DEVICE_ONLY_FOR", "privateuse1")
    assert made() == ["BothOPENREG"]
