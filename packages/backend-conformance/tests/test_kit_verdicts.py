"""Verdicts: what the end of a check says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import kit_runs
import pytest
import torch

import backend_conformance
from backend_conformance.checks.operator_database import Judge
from backend_conformance.result import Result, Summary
from backend_conformance.verdicts import Verdict, first_line, verdict_of

Run = tuple[Summary, dict[str, Result]]


@pytest.mark.parametrize(
    ("name", "verdict", "message"),
    [
        ("passes", Verdict.PASS, ""),
        ("says_wrong", Verdict.WRONG, "five instead of four"),
        ("asserts", Verdict.WRONG, "assert value == 4 (behaved.py:"),
        ("compares", Verdict.WRONG, "Tensor-likes are not close!"),
        ("says_missing", Verdict.MISSING, "torch.nothing.at_all"),
        ("lacks_a_kernel", Verdict.MISSING, "NotImplementedError: "),
        ("says_vacuous", Verdict.VACUOUS, "the host never ran ahead"),
        ("says_not_applicable", Verdict.NOT_APPLICABLE, "there is only one device"),
        ("raises", Verdict.ERROR, "KeyError: 'unexpected' (behaved.py:"),
        ("family[one]", Verdict.PASS, ""),
        ("family[two]", Verdict.WRONG, "case two (behaved.py:"),
    ],
)
def test_the_end_of_a_check_is_its_verdict(behaved: Run, name: str, verdict: Verdict, message: str) -> None:
    result = behaved[1][f"behaved.{name}"]
    assert result.verdict is verdict, result
    assert result.message.startswith(message)


def test_the_output_of_a_failed_check_is_kept(behaved: Run) -> None:
    assert behaved[1]["behaved.raises"].output == "before the error"
    assert behaved[1]["behaved.says_wrong"].output == ""


def test_results_have_the_facts_of_their_check(behaved: Run) -> None:
    result = behaved[1]["behaved.says_wrong"]
    assert (result.group, result.level.label, result.hook) == ("behaved", "trains", "values")
    assert result.page == "behaved.md#says_wrong"


@pytest.mark.parametrize(
    "error",
    [
        NotImplementedError("The operator 'aten::foo' is not currently implemented for the device"),
        RuntimeError("Could not run 'aten::foo' with arguments from the 'PrivateUse1' backend. This could be because"),
        RuntimeError("Backend doesn't support events."),
        RuntimeError("Backend doesn't support create a new Stream."),
        RuntimeError("Please register PrivateUse1HooksInterface by `RegisterPrivateUse1HooksInterface` first."),
        RuntimeError("You should register `PrivateUse1HooksInterface` for PrivateUse1 before call `isPinnedPtr`."),
        RuntimeError("Allocator for name is not a DeviceAllocator."),
        RuntimeError("_share_fd_: only available on CPU"),
        RuntimeError("PrivateUse1 hooks are not registered"),
        AttributeError("module 'torch.name' has no attribute 'current_device'"),
        AttributeError("module 'torch_name.name' has no attribute 'current_device'"),
        ModuleNotFoundError("No module named 'torch.name'"),
        ValueError("Unknown device type name for Dlpack"),
    ],
    ids=lambda error: str(error)[:40],
)
def test_a_clean_refusal_is_missing(error: Exception) -> None:
    assert verdict_of(error) is Verdict.MISSING


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("index 9 is out of bounds for dimension 0 with size 4"),
        RuntimeError("Expected all tensors to be on the same device, but found at least two devices"),
        RuntimeError("no kernel image was found: an illegal memory access was encountered"),
        AttributeError("'NoneType' object has no attribute 'foo'"),
        KeyError("name"),
        type("OutOfMemoryError", (RuntimeError,), {})("not supported: out of memory"),
    ],
    ids=lambda error: str(error)[:40],
)
def test_any_other_exception_is_an_error(error: Exception) -> None:
    assert verdict_of(error) is Verdict.ERROR


def test_an_absent_name_of_the_device_module_is_missing() -> None:
    module = SimpleNamespace()
    with pytest.raises(AttributeError) as raised:
        _ = module.current_device
    assert verdict_of(raised.value) is Verdict.ERROR
    assert verdict_of(raised.value, module) is Verdict.MISSING


def test_an_assertion_of_the_check_is_wrong_whatever_it_says() -> None:
    assert verdict_of(AssertionError("the operator is not implemented")) is Verdict.WRONG


@pytest.mark.parametrize(
    ("path", "verdict"),
    [
        ("torch/amp/autocast_mode.py", Verdict.MISSING),
        ("torch/testing/_comparison.py", Verdict.WRONG),
        ("backend/torch/amp.py", Verdict.WRONG),
    ],
)
def test_an_assertion_of_torch_about_a_registration_is_missing(path: str, verdict: Verdict) -> None:
    library = Path(torch.__file__).parents[1]
    program = compile("raise AssertionError('the backend has not registered a module')", str(library / path), "exec")
    with pytest.raises(AssertionError) as raised:
        exec(program)
    assert verdict_of(raised.value) is verdict


@pytest.mark.parametrize(
    ("error", "line"), [(MemoryError(), "MemoryError"), (ValueError("\n"), "ValueError"), (ValueError("a\nb"), "a")]
)
def test_an_error_is_told_in_one_line(error: Exception, line: str) -> None:
    assert first_line(error) == line


def test_without_numpy_nothing_is_said_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    check = "copying.numpy_refuses_device_memory"
    folder = Path(backend_conformance.__file__).parent / "checks"
    assert kit_runs.run(check, folder=folder)[1][check].verdict is Verdict.NOT_APPLICABLE


def test_a_single_random_bit_is_known_to_be_random() -> None:
    class Coin:
        name = "coin"

        def __call__(self, first: object) -> torch.Tensor:
            return torch.randint(0, 2, (), dtype=torch.bool)

    sample = SimpleNamespace(input=None, args=(), kwargs={}, output_process_fn_grad=lambda result: result)
    judge = Judge(SimpleNamespace(), Coin(), torch.bool)
    for bit in (False, True):
        assert judge.random(sample, [torch.tensor(bit)], gradients=False)
