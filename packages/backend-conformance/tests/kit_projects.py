"""Builds the project that the kit writes for a new backend, and changed versions of it."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from backend_conformance import new
from backend_conformance.reports import json as results
from backend_conformance.result import Result

KIT = Path(new.__file__).parents[1]
NAME = "acme"


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """The output of a command. Fails with it if the command does."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{shlex.join(map(str, command))}\n{done.stdout}"
    return done.stdout


def environment_without_backends(folder: Path) -> Path:
    """The Python of a new environment with the packages of this one, except backends, which all want the same slot."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    target = Path(run(python, "-c", code).strip())
    for name, path in _packages().items():
        (target / name).symlink_to(path)
    (target / "backend_conformance.pth").write_text(f"{KIT}\n")
    return python


@dataclass
class Project:
    """A project that is built once. Its sources are compiled again one by one."""

    folder: Path

    def build(self) -> None:
        new.write(NAME, self.source)
        flags = ["-DCMAKE_BUILD_TYPE=", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DPython_EXECUTABLE={sys.executable}"]
        run("cmake", "-S", self.source, "-B", self.build_folder, "-G", "Ninja", *flags)
        run("cmake", "--build", self.build_folder, "--parallel", "2")

    @property
    def source(self) -> Path:
        return self.folder / "project"

    @property
    def build_folder(self) -> Path:
        return self.folder / "build"

    def package(self, library: Path | None = None) -> Path:
        """A folder for PYTHONPATH, with the package and this library (the project's own if None)."""
        library = library or self.build_folder / f"libtorch_{NAME}.so"
        target = library.parent / "packages"
        shutil.copytree(self.source / "python", target, dirs_exist_ok=True)
        shutil.copy(self.build_folder / "_build.py", target / f"torch_{NAME}")
        shutil.copy(library, target / f"torch_{NAME}" / f"libtorch_{NAME}.so")
        return target

    def change(self, name: str, file: str, old: str, new_text: str) -> Path:
        """Compiles one source with a change, and returns the folder for PYTHONPATH."""
        text = (self.source / "csrc" / file).read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has {text.count(old)} times:\n{old}"
        folder = self.folder / name
        folder.mkdir()
        changed, made = folder / Path(file).name, folder / "changed.o"
        changed.write_text(text.replace(old, new_text), encoding="utf-8")
        objects, compiler = [], []
        for each in json.loads((self.build_folder / "compile_commands.json").read_text()):
            command = shlex.split(each["command"])
            written = command[command.index("-o") + 1]
            if Path(each["file"]) != self.source / "csrc" / file:
                objects += [written] if Path(each["file"]).suffix == ".cpp" else []
                continue
            compiler = command[: next(i for i, word in enumerate(command) if word.startswith("-"))]
            swapped = {each["file"]: str(changed), written: str(made)}
            run(*[swapped.get(word, word) for word in command], cwd=Path(each["directory"]))
        library = folder / f"libtorch_{NAME}.so"
        run(*compiler, "-shared", "-o", library, made, *objects, *_torch_libraries(), cwd=self.build_folder)
        return self.package(library)


def check(packages: Path, *ids: str, setup: str = f"torch_{NAME}") -> dict[str, Result]:
    """The results of checks, by id, on the backend in this folder."""
    report = packages / "results.json"
    env = {
        **os.environ,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",  # only what `--setup` names
        "PYTHONPATH": os.pathsep.join([str(packages), str(KIT)]),
    }
    kit = [sys.executable, "-m", "backend_conformance", "--device", NAME, "--setup", setup]
    done = subprocess.run([*kit, "--json", report, *ids], env=env, capture_output=True, text=True, timeout=600)
    assert report.exists(), done.stderr
    return {each.id: each for each in results.read(report).results}


def _torch_libraries() -> list[Path]:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    return [Path(spec.submodule_search_locations[0], "lib", f"lib{name}.so") for name in ("torch_cpu", "c10")]


def _packages() -> dict[str, Path]:
    """What lies in the folders of packages, the first of each name."""
    found: dict[str, Path] = {}
    for folder in map(Path, sys.path):
        if folder.name == "site-packages":
            for path in folder.iterdir():
                if path.suffix != ".pth" and path.name != "__pycache__" and not _stays_away(path):
                    found.setdefault(path.name, path)
    return found


def _stays_away(path: Path) -> bool:
    """Whether it describes a backend, or a package whose files are elsewhere, to which a .pth file would lead."""
    entry_points, origin = path / "entry_points.txt", path / "direct_url.json"
    return (entry_points.is_file() and "[torch.backends]" in entry_points.read_text()) or (
        origin.is_file() and json.loads(origin.read_text()).get("dir_info", {}).get("editable", False)
    )
