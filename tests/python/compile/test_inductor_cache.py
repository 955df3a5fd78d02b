"""Programs that Inductor keeps in files: of use in the next process, and not after an update of this package."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import torch
from torch._inductor.codecache import FxGraphHashDetails

from torch_openreg._pytorch.compile.inductor import version
from torch_openreg._pytorch.compile.inductor.version import VersionOfPrograms

PROGRAM = """
import time, torch
from torch._dynamo.utils import counters
x = torch.ones(8, device="openreg")
started = time.perf_counter()
print(torch.compile(lambda x: x.sin() + 1)(x).sum().item())
print("seconds", time.perf_counter() - started)
print("hits", counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
"""


@pytest.mark.full
def test_a_second_process_finds_the_program(tmp_path, run_python):
    cold, warm = (run_python(PROGRAM, TORCHINDUCTOR_CACHE_DIR=str(tmp_path)).stdout for _ in range(2))
    assert cold.splitlines()[0] == warm.splitlines()[0]
    assert "hits 0" in cold and "hits 0" not in warm
    seconds = [float(re.search(r"seconds ([\d.]+)", each)[1]) for each in (cold, warm)]
    assert seconds[1] < seconds[0] / 2, seconds


def key() -> object:
    details = FxGraphHashDetails(torch.fx.GraphModule({}, torch.fx.Graph()), [], {}, [])
    return details.custom_backend_passes


def test_the_version_is_part_of_the_key(monkeypatch):
    before = key()
    assert VersionOfPrograms().uuid() in before
    monkeypatch.setattr(version, "version_of_programs", lambda: "another version")
    assert "another version" in key() != before


def test_the_version_changes_with_a_source_that_decides_how_code_is_generated(monkeypatch, tmp_path):
    def of_a_package(changed):
        package = tmp_path / Path(changed).stem
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(Path(version.__file__).parents[3], package, ignore=ignored)
        with (package / changed).open("a") as file:
            file.write("# changed")
        monkeypatch.setattr(version, "__file__", str(package / "_pytorch/compile/inductor/version.py"))
        return version.version_of_programs.__wrapped__()

    versions = {
        version.version_of_programs(),
        of_a_package("_pytorch/compile/cpu_equivalence.py"),
        of_a_package("_pytorch/compile/inductor/wrapper.py"),
    }
    assert len(versions) == 3


def test_the_version_names_the_package_and_its_sources():
    import torch_openreg

    assert re.fullmatch(
        rf"torch_openreg {re.escape(torch_openreg.__version__)} [0-9a-f]{{64}}", VersionOfPrograms().uuid()
    )
