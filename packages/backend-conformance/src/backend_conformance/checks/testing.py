"""PyTorch's test classes: whether tests that are generic over devices run on this one."""

from __future__ import annotations

import unittest
import warnings
from typing import Any

import torch

from backend_conformance import Device, Level, check, missing, not_applicable
from backend_conformance.evidence import expect_error


@check(level=Level.TRAINS, hook="PrivateUse1TestBase: is_available, current_device of the device module")
def device_generic_tests_are_instantiated(device: Device) -> None:
    """`instantiate_device_type_tests` makes a test for each dtype, runs it on the device, and reports a failure.

    Its base class asks the module for `is_available` and `current_device`. If it is not chosen, no test is made, and
    none fails.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
            from torch.testing._internal.common_utils import TestCase
    except ImportError as error:
        not_applicable(f"torch.testing._internal needs another package: {error}")
    seen: list[tuple[str, torch.dtype]] = []

    class Generic(TestCase):
        @dtypes(torch.float32, torch.int64)  # type: ignore[untyped-decorator]
        def test_sum(self, device: str, dtype: torch.dtype) -> None:
            x = torch.ones(2, device=device, dtype=dtype)
            seen.append((x.device.type, dtype))
            self.assertEqual(x + 1, torch.full((2,), 2, device=device, dtype=dtype))

        def test_failure(self, device: str) -> None:
            self.assertEqual(torch.ones(2, device=device), torch.zeros(2, device=device))

    scope: dict[str, Any] = {"Generic": Generic}
    instantiate_device_type_tests(Generic, scope, only_for=(device.name, "privateuse1"))
    made = [each for each in scope.values() if isinstance(each, type)]
    if not made:
        missing(f"PyTorch makes no tests for {device.name}: load the backend before torch.testing._internal")
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(made[0]).run(result)
    assert sorted(seen, key=str) == sorted([(device.name, torch.float32), (device.name, torch.int64)], key=str), seen
    assert not result.errors, result.errors[0][1][-300:]
    failed = [each.id().rpartition(".")[2] for each, _ in result.failures]
    assert len(failed) == 1 and failed[0].startswith("test_failure"), f"the tests that failed: {failed}"


@check(level=Level.TRAINS, hook="kernels of the device")
def assertions_compare_tensors_of_the_device(device: Device) -> None:
    """`torch.testing.assert_close` accepts equal tensors of the device, and finds differences in values and devices.

    A comparison that is always true would make all other tests vacuous.
    """
    x = torch.tensor([1.0, 2.0, float("nan")], device=device.this)
    torch.testing.assert_close(x, x.clone(), equal_nan=True)
    expect_error(lambda: torch.testing.assert_close(x, x.clone()), AssertionError)
    expect_error(lambda: torch.testing.assert_close(x[:2], x[:2] + 0.1), AssertionError)
    expect_error(lambda: torch.testing.assert_close(x[:2], x[:2].cpu()), AssertionError, "device")
    made = torch.testing.make_tensor((3, 4), dtype=torch.float32, device=device.this, low=2, high=3)
    assert made.device == device.this and bool(((made >= 2) & (made <= 3)).all())


@check(level=Level.COMPLETE, hook="torch.library", timeout=120.0)
def custom_operators_are_checked(device: Device) -> None:
    """`torch.library.opcheck` accepts a custom operator with a kernel for the device, a fake kernel and a gradient.

    It runs the operator with fake tensors, under AOTAutograd, and compares its schema with what it does.
    """

    @torch.library.custom_op(f"backend_conformance::twice_{device.name}", mutates_args=(), device_types=device.name)
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(torch.empty_like)
    twice.register_autograd(lambda ctx, gradient: gradient * 2)
    x = torch.arange(3.0, device=device.this, requires_grad=True)
    try:
        torch.library.opcheck(twice, (x,))
    except Exception as error:
        if "NYI devices" not in str(error):
            raise
        missing("opcheck knows the keys of PyTorch's own devices only: patch autograd_registration_check")
    twice(x).sum().backward()
    assert x.grad is not None
    device.cpu_equal(x.grad, torch.full((3,), 2.0))
    expect_error(lambda: twice(torch.ones(2)), (NotImplementedError, RuntimeError))
