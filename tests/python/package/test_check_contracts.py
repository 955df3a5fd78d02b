"""scripts/check_contracts.py: which contracts do not stand alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from modules import load

ROOT = Path(__file__).resolve().parents[3]
checker = load(ROOT / "scripts/check_contracts.py")


@pytest.mark.parametrize(
    ("contract", "lines"),
    [
        ("/// Ignores strides;", [2]),
        ("  /// Ignores strides, and\n  /// respects sizes", [3]),
        ("/// it respects strides.", [2]),
        ("/// and that too;", [2, 2]),
        ("/// Of a device.", [2]),
        ("/// The same with a limit.", [2]),
        ("/// Its error.", [2]),
    ],
)
def test_finds(contract: str, lines: list[int]) -> None:
    assert [line for line, _ in checker.complaints(f"#pragma once\n{contract}\nint f();\n")] == lines


@pytest.mark.parametrize(
    "contract",
    [
        "/// Whether it runs.",
        "/// Like submit(), but\n/// without a limit (see below)",
        "/// Two lines:\n///     first\n///     second",
        "int a;  ///< of the device\n",
        "// and so on",
    ],
)
def test_accepts(contract: str) -> None:
    assert list(checker.complaints(f"{contract}\nint f();\n")) == []
