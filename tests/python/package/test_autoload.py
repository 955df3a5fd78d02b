"""How the device comes to be in torch, and how it stays out. Each test has a process of its own."""

from __future__ import annotations

import ast
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from children import write_metadata

import torch_openreg

DEVICE_IS_THERE = """
assert torch.accelerator.current_accelerator() == torch.device("openreg")
assert torch.get_device_module("openreg") is torch.openreg
assert torch.openreg.device_count() == 2
assert torch.ones(2, device="openreg").sum().item() == 2
"""
DEVICE_IS_NOT_THERE = """
assert not hasattr(torch, "openreg")
assert torch._C._get_privateuse1_backend_name() == "privateuseone"
"""

# As PyTorch's autoload tutorial describes an extension; this one has no PrivateUse1 device.
TORCH_FOO = """
def _autoload():
    import torch
    torch.foo_was_loaded = True
"""
# An extension that finds a device of the kind torch knows.
TORCH_WITH_XPU = """
def _autoload():
    import torch
    torch.xpu.is_available = lambda: True
"""
# An extension that takes the slot that openreg needs.
TORCH_BAR = """
import sys
def _autoload():
    import torch
    torch.utils.rename_privateuse1_backend("bar")
    torch._register_device_module("bar", sys.modules["torch_bar"])
"""


def entry_point(package: str) -> str:
    return f"[torch.backends]\n{package} = {package}:_autoload\n"


@pytest.fixture
def xpu(install):
    """A directory with an extension that makes torch.xpu available."""
    return install("torch_with_xpu", TORCH_WITH_XPU, entry_point("torch_with_xpu"))


def test_import_torch_alone_brings_the_device(run_python):
    run_python("import torch" + DEVICE_IS_THERE)


def test_the_entry_point_can_be_called_again(run_python):
    run_python("import torch_openreg, torch; torch_openreg._autoload(); torch_openreg._autoload()" + DEVICE_IS_THERE)


def test_importing_the_package_after_torch_gives_the_module_another_name(run_python):
    run_python(
        "import torch; module = torch.openreg; import torch_openreg.openreg, torch.openreg.memory\n"
        "assert module is torch.openreg is torch_openreg.openreg\n"
        "assert torch.openreg.memory is torch_openreg.openreg.memory" + DEVICE_IS_THERE
    )


def test_pytorch_switch_keeps_the_device_out(run_python):
    run_python("import torch" + DEVICE_IS_NOT_THERE, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


@pytest.mark.parametrize("order", ["import torch_openreg, torch", "import torch, torch_openreg"])
def test_explicit_import_loads_whatever_the_switch_says(run_python, order):
    run_python(order + DEVICE_IS_THERE, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_a_package_can_set_the_switch_before_it_imports_torch(run_python, install):
    site = install("without", "import os; os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] = '0'; import torch")
    run_python("import without, torch" + DEVICE_IS_NOT_THERE, path=[site])


def test_another_extension_loads_beside(run_python, install):
    site = install("torch_foo", TORCH_FOO, entry_point("torch_foo"))
    run_python("import torch; assert torch.foo_was_loaded" + DEVICE_IS_THERE, path=[site])
    run_python("import torch_openreg, torch; assert torch.foo_was_loaded" + DEVICE_IS_THERE, path=[site])


def test_an_extension_can_import_the_package_itself(run_python, install):
    source = TORCH_FOO.replace("import torch\n", "import torch, torch_openreg\n")
    site = install("torch_foo", source, entry_point("torch_foo"))
    run_python("import torch; assert torch.foo_was_loaded" + DEVICE_IS_THERE, path=[site])


def test_a_spawned_worker_uses_the_device(run_python, tmp_path):
    (tmp_path / "worker.py").write_text(
        "import torch\ndef work(n): return torch.arange(n, device='openreg').sum().item()\n"
    )
    run_python(
        "import multiprocessing, torch, worker\n"
        "if __name__ == '__main__':\n"
        "    assert worker.work(4) == 6\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        assert pool.map(worker.work, [3, 5]) == [3, 10]\n",
        path=[tmp_path],
    )


@pytest.fixture
def copy_of_the_package(tmp_path) -> Path:
    """An installed copy of the package that Python finds before the real one."""
    site = tmp_path / "site-copy"
    for folder in torch_openreg.__path__:  # an editable installation has two
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder, site / "torch_openreg", ignore=ignored, dirs_exist_ok=True)
    # An editable installation's own finder comes before all paths.
    (site / "sitecustomize.py").write_text(
        "import sys\nfrom importlib.machinery import PathFinder\n"
        "sys.meta_path.sort(key=lambda finder: finder is not PathFinder)\n"
    )
    write_metadata(site, "torch_openreg", entry_point("torch_openreg"))
    return site


@pytest.mark.parametrize("statement", ["import torch", "import torch_openreg"])
def test_a_broken_library_names_its_cause_and_the_way_out(run_python, copy_of_the_package, statement):
    (copy_of_the_package / "torch_openreg/lib/libtorch_openreg.so").write_text("not a library")
    result = run_python(statement, path=[copy_of_the_package], check=False)
    assert result.returncode == 1
    assert re.search(r"library cannot be loaded: .*libtorch_openreg.so", result.stderr)
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in result.stderr
    run_python("import torch" + DEVICE_IS_NOT_THERE, path=[copy_of_the_package], TORCH_DEVICE_BACKEND_AUTOLOAD="0")


@pytest.mark.parametrize("statement", ["import torch", "import torch_openreg"])
def test_a_library_for_another_torch_is_one_sentence_and_not_loaded(run_python, copy_of_the_package, statement):
    build = copy_of_the_package / "torch_openreg/_build.py"
    build.write_text('VERSION = "9.9"\nTORCH_VERSION = "1.2.3"\n')
    (copy_of_the_package / "torch_openreg/lib/libtorch_openreg.so").write_text("not a library")
    result = run_python(statement, path=[copy_of_the_package], check=False)
    assert result.returncode == 1
    assert re.search(
        r"ImportError: torch_openreg 9\.9 was built for torch 1\.2\.3, but torch \d\S* is installed: "
        r"build it again for that torch, or run `pip uninstall torch_openreg` or set TORCH_DEVICE_BACKEND_AUTOLOAD=0\n",
        result.stderr,
    )


def test_a_library_for_another_patch_of_the_same_minor_version_is_loaded(run_python, copy_of_the_package):
    minor = ".".join(torch.__version__.split(".")[:2])
    build = copy_of_the_package / "torch_openreg/_build.py"
    build.write_text(f'VERSION = "9.9"\nTORCH_VERSION = "{minor}.99"\n')
    run_python("import torch; assert torch.ones(2, device='openreg').sum().item() == 2", path=[copy_of_the_package])


@pytest.mark.parametrize("statement", ["import torch", "import torch_openreg"])
def test_a_slot_that_is_taken_names_both_packages(run_python, install, statement):
    site = install("torch_bar", TORCH_BAR, entry_point("torch_bar"))
    result = run_python(statement, path=[site], check=False)
    assert result.returncode == 1
    assert "torch_openreg cannot be loaded together with torch_bar: " in result.stderr
    assert "'bar'" in result.stderr


def test_a_user_can_leave_the_slot_to_another_package(run_python, install):
    site = install("torch_bar", TORCH_BAR, entry_point("torch_bar"))
    run_python(
        "import torch; assert torch.bar; assert not hasattr(torch, 'openreg')",
        path=[site],
        TORCH_OPENREG_AUTOLOAD="off",
    )


def test_it_is_not_loaded_beside_an_available_accelerator_and_warns_in_one_line(run_python, xpu):
    result = run_python("import torch" + DEVICE_IS_NOT_THERE, path=[xpu])
    assert len(result.stderr.splitlines()) == 1
    assert "torch_openreg is not loaded because xpu is available" in result.stderr


def test_an_accelerator_that_fails_to_answer_is_none(run_python, install):
    source = TORCH_WITH_XPU.replace("lambda: True", "lambda: 1 / 0")
    site = install("torch_with_xpu", source, entry_point("torch_with_xpu"))
    result = run_python("import torch" + DEVICE_IS_THERE, path=[site])
    assert result.stderr == ""


@pytest.mark.parametrize("value", [None, "0"])
def test_asking_for_accelerators_leaves_the_environment_as_it_is(run_python, value):
    run_python(
        f"import os, torch; assert os.environ.get('PYTORCH_NVML_BASED_CUDA_CHECK') == {value!r}" + DEVICE_IS_THERE,
        PYTORCH_NVML_BASED_CUDA_CHECK=value,
    )


def test_force_loads_it_beside_an_available_accelerator(run_python, xpu):
    result = run_python("import torch" + DEVICE_IS_THERE, path=[xpu], TORCH_OPENREG_AUTOLOAD="force")
    assert result.stderr == ""


@pytest.mark.parametrize("order", ["import torch_openreg, torch", "import torch, torch_openreg"])
def test_explicit_import_loads_it_beside_an_available_accelerator(run_python, xpu, order):
    run_python(order + DEVICE_IS_THERE, path=[xpu])


def test_off_keeps_it_out_silently_until_it_is_imported(run_python):
    result = run_python("import torch" + DEVICE_IS_NOT_THERE, TORCH_OPENREG_AUTOLOAD="off")
    assert result.stderr == ""
    run_python("import torch, torch_openreg" + DEVICE_IS_THERE, TORCH_OPENREG_AUTOLOAD="off")


def test_a_malformed_choice_is_reported_at_first_use_and_not_at_import(run_python):
    code = "import torch\ntry:\n    torch.ones(1, device='openreg')\nexcept RuntimeError as error:\n    print(error)\n"
    result = run_python(code, TORCH_OPENREG_AUTOLOAD="perhaps")
    assert result.stdout == (
        "openreg: TORCH_OPENREG_AUTOLOAD is malformed (got 'perhaps', expected one of default, force, off)\n"
    )


def test_the_log_is_known_to_pytorch(run_python):
    result = run_python("import torch; torch.openreg.init(); torch.openreg.synchronize()", TORCH_LOGS="openreg")
    assert result.stderr.count("openreg is in use: 2 devices") == 1


@pytest.mark.parametrize("choice", ["off", "default"])
def test_the_log_is_known_to_pytorch_if_the_device_is_not_loaded(run_python, xpu, choice):
    code = "import torch" + DEVICE_IS_NOT_THERE
    run_python(code, path=[xpu], TORCH_LOGS="openreg", TORCH_OPENREG_AUTOLOAD=choice)


def signatures(stub: str) -> dict[str, Any]:
    """Of functions the parameters and the result, without what is in brackets; of classes those of their members."""

    def plain(annotation: ast.expr | None) -> set[str]:
        if annotation is None:
            return set()
        if isinstance(annotation, ast.BinOp):
            return plain(annotation.left) | plain(annotation.right)
        if isinstance(annotation, ast.Subscript):
            annotation = annotation.value
        name = ast.unparse(annotation).replace("Sequence", "list")
        return {name.replace("torch.Generator", "object")}  # which the extension takes as any object

    def signature(function: ast.FunctionDef) -> Any:
        arguments = [*function.args.posonlyargs, *function.args.args]
        return [(each.arg, plain(each.annotation)) for each in arguments], plain(function.returns)

    found: dict[str, Any] = {}
    for node in ast.parse(stub).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = signature(node)
        elif isinstance(node, ast.ClassDef):
            found[node.name] = {each.name: signature(each) for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


# In a process of its own: the extension gets classes of its process group when torch.distributed is used.
STUB = """
import torch_openreg
from nanobind import stubgen
generator = stubgen.StubGen(torch_openreg._C, include_private=True, include_docstrings=False)
generator.put(torch_openreg._C)
print(generator.get())
"""


def test_the_stub_declares_what_the_extension_has(run_python):
    found = signatures(run_python(STUB).stdout)
    declared = signatures((Path(torch_openreg.__file__).parent / "_C.pyi").read_text())
    assert declared.keys() == found.keys()
    assert declared == found
