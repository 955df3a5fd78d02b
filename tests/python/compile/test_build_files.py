"""Files that the compiler leaves in the cache: a later run uses whole ones, and replaces others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from children import child_environment
from torch._inductor import cpp_builder

from torch_openreg._pytorch.compile.build_files import is_whole
from torch_openreg._pytorch.compile.inductor.programs import _Libraries

PROGRAM = """
import torch
x = torch.ones(8, device="openreg")
assert torch.compile(lambda x: x.sin() + 1)(x).cpu().allclose(torch.ones(8).sin() + 1)
"""


def libraries(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.main.so"))


@pytest.mark.parametrize("left", [0, 40, 5000], ids=["nothing", "half a header", "a part"])
def test_a_library_that_is_cut_off_is_not_whole(left, tmp_path):
    whole = Path(torch._C.__file__)
    assert is_whole(whole)
    part = tmp_path / "part.so"
    part.write_bytes(whole.read_bytes()[:left])
    assert not is_whole(part)


@pytest.fixture
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch._inductor.config.patch({"cpp_cache_precompile_headers": False, "cpp.vec_isa_ok": True}):
        yield
    _Libraries.cache_clear()


@pytest.mark.usefixtures("_cache")
def test_a_library_that_was_cut_off_is_compiled_again():
    source = 'extern "C" int answer() { return 42; }'
    library = Path(_Libraries.load(source)._name)
    for _ in range(2):
        _Libraries.cache_clear()
        library.unlink()  # this process still uses the file
        library.touch()
        again = _Libraries.load(source)
        assert Path(again._name) == library and again.answer() == 42
        assert is_whole(library)


@pytest.mark.full
def test_processes_that_find_the_same_cut_off_library_both_work(tmp_path, run_python):
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    run_python(PROGRAM, **variables)
    (library,) = libraries(tmp_path)
    os.truncate(library, library.stat().st_size // 2)
    environment = child_environment([], variables)
    children = [subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, cwd=tmp_path) for _ in range(2)]
    assert [child.wait(timeout=240) for child in children] == [0, 0]
    assert is_whole(library)


class Killed(BaseException):
    pass


def test_a_compiler_that_is_killed_leaves_nothing_in_the_place(tmp_path, monkeypatch):
    def builder() -> cpp_builder.CppBuilder:
        source = tmp_path / "source.cpp"
        source.write_text("int answer() { return 42; }")
        options = cpp_builder.CppOptions(warning_all=False)
        return cpp_builder.CppBuilder("name", str(source), options, output_dir=str(tmp_path / "built"))

    def is_killed(command: str, cwd: str) -> None:
        (written,) = [part for part in command.split() if ".so" in part]
        Path(written).write_bytes(b"\x7fELF")
        raise Killed

    target = Path(builder().get_target_file_path())
    with monkeypatch.context() as patch:
        patch.setattr(cpp_builder, "run_compile_cmd", is_killed)
        with pytest.raises(Killed):
            builder().build()
    assert not target.exists()
    builder().build()
    assert is_whole(target) and [each.name for each in target.parent.glob("*.so*")] == [target.name]
