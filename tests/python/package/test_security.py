"""SECURITY.md: which sources start processes, open sockets and read the system's files."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SECURITY = (ROOT / "SECURITY.md").read_text()
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for kind in ("cpp/**/*.cpp", "cpp/**/*.h", "python/**/*.py")
    for path in ROOT.glob(kind)
}


def sources_with(pattern: str) -> set[str]:
    return {path for path, text in SOURCES.items() if re.search(pattern, text, re.M)}


def test_processes_are_started_where_the_page_says() -> None:
    assert sources_with(r"\b(?:v?fork\(\)|(?:posix_spawnp?|execv\w*|popen|system)\()") == {
        "cpp/executor/executor_process.cpp",
        "cpp/executor/supervisor.cpp",
    }
    assert sources_with(r"^import subprocess\b|subprocess\.\w+\(") == {
        "python/torch_openreg/__main__.py",
        "python/torch_openreg/fits/run.py",
    }
    for words in (
        "TORCH_OPENREG_EXECUTOR=process",
        "`torch.compile`",
        "`python -m torch_openreg --check`",
        "`python -m torch_openreg fits`",
    ):
        assert words in SECURITY


def test_sockets_are_those_of_executors() -> None:
    assert sources_with(r"\bsocket(?:pair)?\(|import socket\b") == {"cpp/executor/executor_process.cpp"}


def test_the_page_lists_the_files_of_the_system() -> None:
    named = {match for text in SOURCES.values() for match in re.findall(r'"/?((?:proc|sys)/\w+[\w/]*)', text)}
    assert named >= {"proc/self/cgroup", "proc/meminfo"}
    assert [path for path in sorted(named) if "/" + "/".join(path.split("/")[:3]) not in SECURITY] == []
