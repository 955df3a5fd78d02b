"""The scripts, where no other test or workflow runs them daily."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"

# An interpreter that makes environments with itself, and installs nothing.
PYTHON = """\
#!/bin/sh
[ "$1" = - ] && cat >/dev/null
[ "$1 $2" = "-m venv" ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
[ "$1 $2" = "-m pip" ] && echo "pip $*"
exit 0
"""

TEST = """\
#!/usr/bin/env bash
source scripts/environment.sh
echo "tests $VIRTUAL_ENV $build_dir $*"
[[ $VIRTUAL_ENV != *2.14 ]]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "bin").mkdir()
    for name in ("environment.sh", "test-versions"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")
    for path, text in {"scripts/test": TEST, "bin/python3": PYTHON}.items():
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)
    return tmp_path


def test_versions_are_each_tested_in_an_environment_and_a_build_tree_of_their_own(project: Path) -> None:
    environment = {**os.environ, "PATH": f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = [project / "scripts/test-versions", "2.14", "2.15.0", "--", "--full"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 1
    lines = [line for line in result.stdout.splitlines() if line.startswith(("pip", "tests"))]
    assert lines == [
        "pip -m pip install --quiet torch==2.14.*",
        f"tests {project}/build/torch-2.14 build/wheel-torch-2.14 --full",
        "pip -m pip install --quiet torch==2.15.0",
        f"tests {project}/build/torch-2.15 build/wheel-torch-2.15 --full",
    ]
    assert result.stderr == "openreg: scripts/test failed with torch 2.14.*\n"
