"""The headers of a version of torch, without its libraries, so that it need not run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
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
        text = [name for name in archive.namelist() if name.endswith((".h", ".hpp"))]
        archive.extractall(folder, text)
    wheel.unlink()
    return folder
