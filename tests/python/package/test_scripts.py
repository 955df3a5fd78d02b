"""The scripts, where no other test or workflow runs them daily."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from modules import load

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"

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


def test_a_sample_has_a_test_of_each_folder_and_all_turns_have_all_tests() -> None:
    sample = load("tests/python/conftest.py")._sample
    tests = [
        SimpleNamespace(path=Path(f"{count}/test_{i % 3}.py"), number=i)
        for count in (1, 5, 12, 30)
        for i in range(count)
    ]
    turns = [sample(tests, 12, turn) for turn in range(12)]
    assert all({test.path.parent for test in turn} == {test.path.parent for test in tests} for turn in turns)
    assert all(len(turn) in (5, 6) for turn in turns)  # of the last folder 2 or 3
    assert [test for test in tests if any(test in turn for turn in turns)] == tests
    assert sample(tests, 12, 63) == turns[3]


def programs(folder: Path, *real: str, **stubs: str) -> dict[str, str]:
    """An environment in which there are no other programs than these; stubs are the text of a shell's script."""
    folder.mkdir()
    for name in real:
        (folder / name).symlink_to(shutil.which(name))
    for name, text in stubs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return {"PATH": str(folder)}


def test_an_archive_of_the_sources_is_checked_without_git(tmp_path: Path) -> None:
    root = tmp_path / "an archive/torch_openreg"
    (root / "build").mkdir(parents=True)
    (root / "build/generated.cpp").touch()
    (root / "scripts").mkdir()
    shutil.copy(SCRIPTS / "lint", root / "scripts")
    sources = ["cpp/runtime/b.h", "cpp/runtime/b.cpp", "examples/c.cpp", "tests/cpp/d e.cpp"]
    for name in [*sources, "cpp/CMakeLists.txt"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    others = dict.fromkeys(("ruff", "mypy", "python", "zizmor"), 'echo "${0##*/}" >>called')
    formatter = {"clang-format": 'for each; do echo "$each" >>formatted; done'}
    environment = programs(tmp_path / "bin", "bash", "dirname", "find", "xargs", **formatter, **others)
    result = subprocess.run([root / "scripts/lint"], capture_output=True, text=True, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    formatted = (root / "formatted").read_text().splitlines()
    assert sorted(formatted) == sorted(["--dry-run", "--Werror", *sources])
    assert (root / "called").read_text().split() == ["ruff", "ruff", "mypy", *["python"] * 5, "zizmor"]


def test_documents_are_those_of_the_project() -> None:
    check_docs = load("scripts/check_docs.py")
    names = {str(path.relative_to(ROOT)) for path in check_docs.documents()}
    assert names >= {"README.md", "docs/memory.md", "docs/device/index.md", "packages/pytest-openreg/README.md"}
    assert not any(name.startswith(("build/", ".venv/", ".")) for name in names)
    assert {path.suffix for path in check_docs.sources()} == {".h", ".cpp", ".py"}


@pytest.mark.parametrize(
    ("user", "others", "reason"),
    [
        ("1000", {}, "needs root, for chroot"),
        ("0", {}, "needs debootstrap"),
        ("0", {"debootstrap": ""}, "needs a clone, and git to clone it again"),
        ("0", {"debootstrap": "", "git": "", "unshare": "exit 1"}, "needs to mount, which this system forbids"),
        (
            "0",
            {
                "debootstrap": "echo E: Failed getting release file; exit 1",
                "git": "",
                "unshare": '[ "$3" = --fork ] || { shift; exec "$@"; }',
            },
            "could not make Debian bookworm: debootstrap says: E: Failed getting release file",
        ),
    ],
)
def test_bare_systems_are_skipped_with_the_reason(
    tmp_path: Path, user: str, others: dict[str, str], reason: str
) -> None:
    stubs = {"id": f"echo {user}", **others}
    environment = programs(tmp_path / "bin", "bash", "cat", "dirname", "mktemp", "rm", "sed", "tail", **stubs)
    project, temporary = tmp_path / "project", tmp_path / "temporary"
    for folder in (project / ".git", project / "scripts", temporary):
        folder.mkdir(parents=True)
    for name in ("environment.sh", "test-bare"):
        shutil.copy(SCRIPTS / name, project / "scripts")
    command = [project / "scripts/test-bare", "bookworm"]
    result = subprocess.run(command, capture_output=True, text=True, env={**environment, "TMPDIR": str(temporary)})
    assert result.returncode == 77, result.stderr
    assert result.stdout.splitlines()[-1] == f"openreg: skipped: scripts/test-bare {reason}"
    assert list(temporary.iterdir()) == []
