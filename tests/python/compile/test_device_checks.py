"""Each place at which PyTorch's compiler asks for the type of a device has a decision."""

from __future__ import annotations

import ast

import pytest
from modules import load

pytestmark = pytest.mark.any_device

device_checks = load("scripts/device_checks.py")
Place = device_checks.Place


def test_each_place_of_this_torch_has_a_decision():
    found = device_checks.places(device_checks.installed())
    assert len(found) > 200
    unknown = device_checks.undecided(found, device_checks.TABLE.read_text())
    assert not unknown, "decide these, and add them to scripts/device_checks.txt:\n" + "\n".join(map(str, unknown))


@pytest.mark.openreg_only
def test_functions_that_decide_as_for_the_cpu_are_in_the_table():
    from torch_openreg._pytorch.compile.cpu_equivalence import OF_INDUCTOR

    decided = {
        each.functions for each in device_checks.decisions(device_checks.TABLE.read_text()) if each.decision == "cpu"
    }
    changed = {
        f"{module.removeprefix('torch.')}:{name}" for module, functions in OF_INDUCTOR.items() for name in functions
    }
    without_a_part = {name.removesuffix(".inner_fn") for name in decided}
    assert changed <= without_a_part


@pytest.mark.parametrize(
    ("source", "expressions"),
    [
        ("is_gpu(x)", ["is_gpu(x)"]),
        ("x.is_cpu", ["x.is_cpu"]),
        ("x.is_cuda or d.type == 'cuda'", []),
        ("d.type != 'cpu' and y", ["d.type != 'cpu'"]),
        ("d in ('cpu', 'xpu')", ["d in ('cpu', 'xpu')"]),
        ("d == torch.device('cpu')", ["d == torch.device('cpu')"]),
        ("for t in GPU_TYPES: pass", ["GPU_TYPES"]),
        ("name == 'weight'", []),
        ("x.is_cpu = True", []),
    ],
)
def test_a_place_is_found(source, expressions):
    code = f"class A:\n def f():\n  def g():\n   {source}"
    assert list(device_checks.places_of(ast.parse(code), "m")) == [Place("m:A.f.g", each) for each in expressions]


def test_another_expression_in_a_known_function_has_no_decision():
    table = "# a remark\ncpu m:f | x.is_cpu\nelsewhere n.*"
    places = [Place("m:f", "x.is_cpu"), Place("m:f", "x.is_mps"), Place("n.o:g", "y.is_cpu")]
    assert device_checks.undecided(places, table) == [places[1]]
