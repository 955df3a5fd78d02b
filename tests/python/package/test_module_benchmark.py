"""The benchmark of modules covers all that torch.nn and torch.nn.functional offer."""

from __future__ import annotations

import inspect

import pytest
import torch.nn.functional as F
from modules import ROOT, load
from torch import nn
from torch.overrides import TorchFunctionMode


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return load("benchmarks/torch_nn.py")


class Calls(TorchFunctionMode):
    """Records which functions of torch.nn.functional are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.by_function = {getattr(F, name): name for name in public_functions()}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in self.by_function:
            self.names.add(self.by_function[function])
        return function(*args, **(kwargs or {}))


def public_functions() -> set[str]:
    own = ("torch.nn.functional", "torch._C._nn", "torch", "torch._jit_internal", None)
    return {
        name
        for name, value in vars(F).items()
        if not name.startswith("_")
        and callable(value)
        and not inspect.isclass(value)
        and getattr(value, "__module__", None) in own
    }


@pytest.mark.filterwarnings("ignore")
def test_each_module_and_function_has_a_case_or_a_reason(benchmark):
    modules: set[str] = set()
    with Calls() as calls:
        for by_name in benchmark.makers().values():
            for maker in by_name.values():
                function, inputs = maker(benchmark.SMALL)
                function(*inputs)
                if isinstance(function, nn.Module):
                    modules |= {type(each).__name__ for each in function.modules()}
    public = {name for name, value in vars(nn).items() if inspect.isclass(value) and issubclass(value, nn.Module)}
    public = {name for name in public if not name.startswith("Lazy")}  # these become modules that have a case
    left_out = set(benchmark.left_out())
    assert public - modules - left_out == set()
    assert public_functions() - calls.names - left_out == set()
    assert left_out <= set(dir(nn)) | set(dir(F)), "they do not exist"
