"""Headers and Python files of a version of torch, without its libraries, so that it need not run."""

from __future__ import annotations

import ast
import functools
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

# In a build for CUDA of these versions, the only one for Linux on PyPI, the slot is taken.
UNBUILT_VERSIONS = ("2.14", "2.15")


def unpacked(version: str, folder: Path) -> Path | None:
    """A folder with these files of `version`, from the wheel that pip finds; none if it finds none.

    "installed" is the version that runs.
    """
    if version == "installed":
        spec = importlib.util.find_spec("torch")
        assert spec is not None and spec.submodule_search_locations is not None
        return Path(spec.submodule_search_locations[0]).parent
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"torch=={version}.*"]
    if subprocess.run([*download, "--dest", folder], check=False).returncode != 0:
        return None
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        text = [name for name in archive.namelist() if name.endswith((".py", ".pyi", ".h", ".hpp"))]
        archive.extractall(folder, text)
    wheel.unlink()
    return folder


class Modules:
    """The modules of a torch by their source, as far as it can be read without running it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def has(self, module: str, path: str, above: frozenset[tuple[str, str]] = frozenset()) -> bool:
        """Whether `path` (`Class.method`, `submodule.function`) exists in `module`.

        `above`: what is being looked up, because modules import names from each other.
        """
        if not path or (module, path) in above:
            return not path
        above |= {(module, path)}
        first, _, rest = path.partition(".")
        if self._file(f"{module}.{first}") is not None and self.has(f"{module}.{first}", rest, above):
            return True
        if any(self._leads_to(module, node, first, rest, above) for node in self._bindings(module)):
            return True
        # Some names of torch are those of its extension module, which a loop copies.
        return module == "torch" and self.has("torch._C", path, above)

    def _leads_to(self, module: str, node: ast.stmt, name: str, rest: str, above: frozenset[tuple[str, str]]) -> bool:
        """Whether this statement gives the module the name, and what it names has `rest`."""
        if isinstance(node, ast.ImportFrom):
            package = module if self._is_package(module) else module.rpartition(".")[0]
            for _ in range(node.level - 1):
                package = package.rpartition(".")[0]
            source = ".".join(filter(None, (package if node.level else "", node.module or "")))
            return source.startswith("torch") and any(
                self.has(source, ".".join(filter(None, (alias.name, rest))), above)
                for alias in node.names
                if (alias.asname or alias.name) == name
            )
        if name not in names_bound_by(node):
            return False
        if isinstance(node, ast.ClassDef) and rest:
            return self._class_has(module, node, rest, above)
        return True

    def _class_has(self, module: str, node: ast.ClassDef, member: str, above: frozenset[tuple[str, str]]) -> bool:
        if any(member in names_bound_by(each) for each in statements(node.body)):
            return True
        for base in map(ast.unparse, node.bases):
            owner, _, name = base.rpartition(".")
            if self.has(owner or module, f"{name}.{member}", above):
                return True
        return not node.bases and hasattr(object, member)

    def _bindings(self, module: str) -> list[ast.stmt]:
        file = self._file(module)
        return [] if file is None else parsed(file)

    def _is_package(self, module: str) -> bool:
        file = self._file(module)
        return file is not None and file.stem == "__init__"

    def _file(self, module: str) -> Path | None:
        path = self.root.joinpath(*module.split("."))
        candidates = (path.with_suffix(".py"), path / "__init__.py", path.with_suffix(".pyi"), path / "__init__.pyi")
        return next((file for file in candidates if file.exists()), None)


@functools.cache
def parsed(file: Path) -> list[ast.stmt]:
    return list(statements(ast.parse(file.read_text()).body))


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module's or class's own scope, also under conditions."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            for field in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)


def names_bound_by(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    if isinstance(node, ast.AnnAssign):
        return {node.target.id} if isinstance(node.target, ast.Name) else set()
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return set()
