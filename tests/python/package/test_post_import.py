"""Code that waits for a module to be imported."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

from torch_openreg._pytorch import patches, post_import


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that can be imported, and has not been."""
    (tmp_path / "imported_late.py").write_text("VALUE = 1\nif VALUE is None: raise ImportError\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "imported_late"
    sys.modules.pop("imported_late", None)
    post_import._finder.waiting.pop("imported_late", None)


def test_a_callback_runs_once_after_the_import(module):
    seen = []
    post_import.when_imported(module, lambda m: seen.append(m.VALUE))
    assert seen == []
    first = __import__(module)
    assert seen == [1]
    # The loader is as it would be: the module can say where it comes from, and can be loaded again.
    assert first.__loader__.get_source(module).startswith("VALUE = 1")
    del sys.modules[module]
    __import__(module)
    assert seen == [1]


def test_a_callback_for_an_imported_module_runs_at_once(module):
    imported = __import__(module)
    seen = []
    post_import.when_imported(module, seen.append)
    assert seen == [imported]


def test_what_a_callback_raises_is_an_error_of_the_import(module):
    def fail(_):
        raise ValueError("no")

    post_import.when_imported(module, fail)
    with pytest.raises(ValueError, match="no"):
        __import__(module)
    assert module not in sys.modules


def test_a_module_that_does_not_exist_is_not_found_as_ever():
    post_import.when_imported("no_such_module", pytest.fail)
    try:
        with pytest.raises(ModuleNotFoundError, match="no_such_module"):
            __import__("no_such_module")
    finally:
        del post_import._finder.waiting["no_such_module"]


def test_a_package_without_code_is_imported_as_ever(tmp_path, monkeypatch):
    (tmp_path / "without_code").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    post_import.when_imported("without_code", lambda _: None)
    try:
        assert list(__import__("without_code").__path__) == [str(tmp_path / "without_code")]
    finally:
        post_import._finder.waiting.pop("without_code", None)
        sys.modules.pop("without_code", None)


def test_a_finder_of_the_old_protocol_is_skipped(module, monkeypatch):
    """Python 3.11 and older call its `find_module`."""

    class Old:
        def find_module(self, name, path=None):
            return None

    monkeypatch.setattr(sys, "meta_path", [Old(), *sys.meta_path])
    seen = []
    post_import.when_imported(module, lambda m: seen.append(m.VALUE))
    assert post_import._finder.find_spec(module, None).name == module


def test_a_callback_may_be_named(module, monkeypatch):
    seen = []
    monkeypatch.setattr(post_import, "note", lambda m: seen.append(m.VALUE), raising=False)
    post_import.when_imported(module, "post_import:note")
    __import__(module)
    assert seen == [1]


@pytest.mark.parametrize(("module", "patch"), patches._WHEN_IMPORTED)
def test_patches_name_functions_of_this_package_and_modules_of_pytorch(module, patch):
    # PyTorch does not need Triton for the CPU.
    package = module.partition(".")[0]
    assert package == "triton" or importlib.util.find_spec(module) is not None
    name, function = patch.split(":")
    source = Path(patches.__file__).parent / f"{name.replace('.', '/')}.py"
    definitions = {each.name: each for each in ast.parse(source.read_text()).body if isinstance(each, ast.FunctionDef)}
    assert len(definitions[function].args.args) == 1
