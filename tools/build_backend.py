"""The build backend: scikit-build-core, with the torch that the package is compiled against.

A backend is bound to the minor version of torch that it was compiled against. Isolated builds hide the packages of the
environment that the package is built for, so that scikit-build-core alone would fetch the newest torch (gigabytes),
which may not be the one that is installed. This module looks for the torch of that environment and compiles against it
where it is; only if there is none, or none that is supported, the build requires a torch. In both cases the wheel's
metadata require the minor version that it was compiled against.

pip runs this module with the environment's interpreter, and has the build requirements on PYTHONPATH. uv, `build` and
others run it in a separate environment, and do not say which one the package is for: unless isolation is switched off,
the wheel then requires the newest torch that is supported.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from scikit_build_core import build as scikit_build
from scikit_build_core.build import (
    build_sdist as build_sdist,
    get_requires_for_build_sdist as get_requires_for_build_sdist,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ConfigSettings = Mapping[str, "str | list[str]"]

# Compiles against a torch that is newer than what pyproject.toml allows.
ALLOW_NEWER = "OPENREG_ALLOW_NEWER_TORCH"


@dataclass(frozen=True)
class Torch:
    root: Path  # the package's directory
    version: Version


def supported() -> str:
    """The versions of torch that pyproject.toml allows."""
    pyproject = tomllib.loads(Path("pyproject.toml").read_text())
    (entry,) = pyproject["tool"]["dynamic-metadata"]
    versions: str = entry["torch"]
    return versions


def allows(version: Version) -> bool:
    specifiers = SpecifierSet(supported())
    if version.base_version in specifiers:
        return True
    newest = max(Version(each.version) for each in specifiers)
    # 2.16.0.dev1 is less than 2.16.
    return Version(version.base_version) >= newest and os.environ.get(ALLOW_NEWER) == "1"


@functools.cache
def find_torch() -> Torch | None:
    """The supported torch that this interpreter has: first the build's own, then the one of the environment."""
    # Fails if there is no torch, or only a folder of that name, which has no origin.
    where = """
import importlib.util, os, sys
sys.path = [path for path in sys.path if path]
print(os.path.dirname(importlib.util.find_spec("torch").origin))
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONNOUSERSITE")}
    for variables in (os.environ, environment):
        # In a separate process and another directory, so that the build's paths and the sources are not searched. The
        # path is the last line, because a sitecustomize may print, too.
        result = subprocess.run([sys.executable, "-c", where], capture_output=True, text=True, env=variables, cwd="/")
        if result.returncode != 0:
            continue
        root = Path(result.stdout.splitlines()[-1])
        version = re.search(r"^__version__ = '(.*)'", (root / "version.py").read_text(), re.M)
        assert version is not None, f"{root}/version.py has no __version__"
        torch = Torch(root, Version(version[1]))
        if allows(torch.version):
            return torch
        print(f"torch_openreg supports torch {supported()} (got {torch.version} in {torch.root})", file=sys.stderr)
    return None


def minor(version: Version) -> str:
    return f"{version.major}.{version.minor}"


# The hooks of [[tool.dynamic-metadata]]: the package's requirements.

_is_sdist = False


def build_state(state: str) -> None:
    global _is_sdist
    _is_sdist = state == "sdist"


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, list[str]]:
    torch = None if _is_sdist else find_torch()
    return {"dependencies": [f"torch=={minor(torch.version)}.*" if torch else f"torch{settings['torch']}"]}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    return {"dependencies": True}  # a wheel allows fewer versions than the source distribution that it was built from


# The hooks of PEP 517 and 660.


def _requires(found: list[str]) -> list[str]:
    return found if find_torch() else [*found, f"torch{supported()}"]


def _with_torch(config_settings: ConfigSettings | None) -> dict[str, Any]:
    settings = dict(config_settings or {})
    torch = find_torch()
    # If there is none, CMake must stop instead of using the torch of an earlier build in the same folder.
    settings.setdefault("cmake.define.OPENREG_TORCH_ROOT", str(torch.root) if torch else "")
    return settings


def get_requires_for_build_wheel(config_settings: ConfigSettings | None = None) -> list[str]:
    return _requires(scikit_build.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_editable(config_settings: ConfigSettings | None = None) -> list[str]:
    return _requires(scikit_build.get_requires_for_build_editable(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: ConfigSettings | None = None) -> str:
    return scikit_build.prepare_metadata_for_build_wheel(metadata_directory, _with_torch(config_settings))


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: ConfigSettings | None = None) -> str:
    return scikit_build.prepare_metadata_for_build_editable(metadata_directory, _with_torch(config_settings))


def build_wheel(
    wheel_directory: str, config_settings: ConfigSettings | None = None, metadata_directory: str | None = None
) -> str:
    return scikit_build.build_wheel(wheel_directory, _with_torch(config_settings), metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: ConfigSettings | None = None, metadata_directory: str | None = None
) -> str:
    return scikit_build.build_editable(wheel_directory, _with_torch(config_settings), metadata_directory)
