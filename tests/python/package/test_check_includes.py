"""scripts/check_includes.py: which includes it finds, and that the documents show its list of layers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from modules import load

ROOT = Path(__file__).resolve().parents[3]
checker = load(ROOT / "scripts/check_includes.py")


def complaints(tmp_path: Path, path: str, included: str) -> list[str]:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(f"#pragma once\n#include {included}\n")
    return list(checker.complaints(tmp_path))


@pytest.mark.parametrize(
    ("path", "included"),
    [
        ("runtime/stream.h", '"memory/heap.h"'),
        ("base/host_memory.cpp", '"runtime/stream.h"'),
        ("base/host_memory.cpp", "<c10/core/Stream.h>"),
        ("memory/heap.cpp", '"backend/stream.h"'),
        ("backend/hooks.cpp", '"ops/wire/number.h"'),
        ("ops/wire/number.h", '"ops/launch/launch.h"'),
        ("ops/tiers/boxed.cpp", '"ops/random/transformation.h"'),
        ("ops/launch/probe.cpp", '"distributed/work.h"'),
        ("distributed/work.cpp", '"bindings/bindings.h"'),
        ("runtime/stream.h", "<c10/core/Stream.h>"),
        ("memory/heap.cpp", "<ATen/Tensor.h>"),
        ("backend/hooks.cpp", "<Python.h>"),
        ("slot/torch_version.h", "<Python.h>"),
        ("slot/torch_version.h", '"backend/stream.h"'),
        ("ops/launch/probe.cpp", "<nanobind/nanobind.h>"),
        ("unknown/file.cpp", "<vector>"),
    ],
)
def test_finds(tmp_path, path, included):
    (complaint,) = complaints(tmp_path, path, included)
    assert complaint.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("path", "included"),
    [
        ("runtime/stream.h", "<memory>"),
        ("runtime/stream.h", '"runtime/fence.h"'),
        ("runtime/process.cpp", '"address_space/address_space.h"'),
        ("base/host_memory.cpp", '"base/error.h"'),
        ("memory/heap.cpp", '"runtime/stream.h"'),
        ("ops/tiers/boxed.cpp", '"ops/wire/number.h"'),
        ("distributed/work.cpp", '"ops/wire/number.h"'),
        ("bindings/module.cpp", "<Python.h>"),
        ("cuda/graph_trees.cpp", "<Python.h>"),
        ("cuda/graph_trees.cpp", '"bindings/bindings.h"'),
        ("backend/hooks.cpp", "<ATen/Context.h>"),
    ],
)
def test_accepts(tmp_path, path, included):
    assert complaints(tmp_path, path, included) == []


def run(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, root / "scripts/check_includes.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_table_of_layers_is_the_list(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "cpp").mkdir()
    shutil.copy(ROOT / "scripts/check_includes.py", tmp_path / "scripts")
    document = tmp_path / "CONTRIBUTING.md"
    right = (ROOT / "CONTRIBUTING.md").read_text()
    for wrong in (
        right.replace("| `cpp/slot` |", "| `cpp/slots` |"),
        right.replace("| `cpp/slot` ", "\n\n| `cpp/slot` "),
    ):
        assert wrong != right
        document.write_text(wrong)
        result = run(tmp_path)
        assert result.returncode == 1
        assert "run: python scripts/check_includes.py --write" in result.stdout
    document.write_text(right.replace("| `cpp/slot` |", "| `cpp/slots` |"))
    assert run(tmp_path, "--write").returncode == 0
    assert document.read_text() == right
    assert run(tmp_path).returncode == 0
