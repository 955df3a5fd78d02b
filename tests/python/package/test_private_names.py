"""`tests/private_names`: the table of PyTorch's private names is whole, and right for the installed torch."""

import copy
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "private_names"))
import names_table
import used_names

# What a patch adds, and PyTorch lacks.
ADDED = {
    "torch.cuda.__getattr__",  # Python calls it
    # Instances of pipeline stages have them, in the versions whose stages vote.
    "torch.?._is_same_rank",
    "torch.?._stage_meta",
    "torch.?._user_meta",
    "torch.cuda._get_device_properties",  # PyTorch makes it in a function that a build without CUDA cannot run
}


@pytest.fixture(scope="module")
def table() -> names_table.Table:
    return names_table.read()


@pytest.fixture(scope="module")
def installed(table) -> names_table.Table:
    return names_table.refreshed(table, names_table.installed_version())


def test_the_table_has_each_name_that_is_used_as_the_installed_torch_has_it(table, installed):
    assert names_table.differences(table, installed) == []


def test_the_table_knows_each_supported_version(table):
    (supported,) = (
        line for line in (used_names.ROOT / "pyproject.toml").read_text().splitlines() if line.startswith("torch = ")
    )
    first, end = (int(each.strip('"').rpartition(".")[2]) for each in supported.removeprefix("torch = ").split(","))
    versions = [f"2.{minor}" for minor in range(first, end)]
    others = {name for name, row in table.items() if list(row["seen"]) != versions}
    assert others == names_table.OF_BUILDS & table.keys()


def test_each_name_exists_in_some_version(table):
    seen = {name: set(row["seen"].values()) for name, row in table.items()}
    assert {name for name, kinds in seen.items() if kinds == {"absent"}} == ADDED


def test_a_change_of_type_or_of_parameters_is_a_difference(table, installed):
    version = names_table.installed_version()
    changed = copy.deepcopy(installed)
    changed["torch._dynamo.graph_bytecode_inputs.index_to_external_object_weakref"]["seen"][version] = "tuple"
    changed["torch._inductor.compile_fx._compile_fx_inner"]["seen"][version] = "function(gm)"
    assert [line.split(" is ")[0] for line in names_table.differences(table, changed)] == [
        "torch._dynamo.graph_bytecode_inputs.index_to_external_object_weakref",
        "torch._inductor.compile_fx._compile_fx_inner",
    ]


def test_a_new_version_is_compared_with_the_newest_that_the_table_knows(table):
    newer = {name: {"by": row["by"], "seen": dict(row["seen"])} for name, row in table.items()}
    for row in newer.values():
        if row["seen"]:
            row["seen"]["2.99"] = row["seen"]["2.15"]
    assert names_table.differences(table, newer) == []
    newer["torch._C._accelerator_exchangeDevice"]["seen"]["2.99"] = "absent"
    (line,) = names_table.differences(table, newer)
    assert line.startswith("torch._C._accelerator_exchangeDevice is 'absent' in 2.99")


SOURCE = """
import functools
import importlib
import sys
import torch
from torch._private import name as renamed
from torch.public import _hidden, shown
from . import _ours

_PATCHES = (("torch.patched", "patch"), ("torch._other", "_beside:patch_beside"))

def patch(module):
    module.replaced = module.Class.method
    _pass_on(module)
    _ours.elsewhere(module)

def _pass_on(given):
    def method(self):
        return self._object
    given.passed = functools.partial(_further, given)

def _further(again):
    return again.further

def function(value):
    x: object = importlib.import_module("torch._imported")
    getattr(x, "by_getattr", None)
    sys.modules["torch._listed"].entry = renamed.attribute
    torch.public.Class.changed = function
    torch.public.function(shown, torch._C._top, _hidden.__name__, _ours._not_pytorchs, value._unknown)

class Derived(renamed.Base):
    def overridden(self):
        return self._defined_here

    def __init__(self):
        self._defined_here = self._object = 1
"""


def test_the_sources_are_searched(tmp_path, monkeypatch):
    (tmp_path / "source.py").write_text(SOURCE)
    (tmp_path / "_beside.py").write_text("def patch_beside(other): return other.attribute")
    (tmp_path / "_ours.py").write_text("def elsewhere(module): return module.from_elsewhere")
    monkeypatch.setattr(used_names, "PACKAGES", [tmp_path])
    monkeypatch.setattr(used_names, "ROOT", tmp_path)
    found, overrides = used_names.used()
    assert overrides == {"torch._private.name.Base.overridden", "torch._private.name.Base.__init__"}
    assert sorted(found.keys() - overrides) == [
        "torch.?._object",
        "torch.?._unknown",
        "torch._C._top",
        "torch._imported",
        "torch._imported.by_getattr",
        "torch._listed.entry",
        "torch._other",
        "torch._other.attribute",
        "torch._private.name",
        "torch._private.name.Base",
        "torch._private.name.attribute",
        "torch.patched",
        "torch.patched.Class.method",
        "torch.patched.from_elsewhere",
        "torch.patched.further",
        "torch.patched.passed",
        "torch.patched.replaced",
        "torch.public.Class.changed",
        "torch.public._hidden",
    ]
    assert found["torch.patched.from_elsewhere"] == ["_ours.py"]
