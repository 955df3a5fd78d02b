"""The table, `private_names.json`, and how the sources and the installed torch differ from it."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

from kinds_of_names import kinds
from used_names import used

TABLE = Path(__file__).with_name("private_names.json")

# What only a build of PyTorch with CUDA has, or has otherwise, so the table does not say what it is.
OF_BUILDS = frozenset(
    {
        "torch._C._CudaDeviceProperties",
        "torch._C._CudaEventBase",
        "torch._C._cuda_getDeviceCount",
        "torch._C._cudart",
        "torch._C._nccl_all_reduce",
        "torch.cuda._CudaDeviceProperties",
        "torch.cuda._cudart",
        "torch.distributed.distributed_c10d.default_pg_nccl_timeout",
        "torch.distributed.distributed_c10d._NCCL_AVAILABLE",
    }
)

Table = dict[str, dict[str, Any]]


def read() -> Table:
    """By name: "by", the files that use it, and "seen", its kind by minor version."""
    table: Table = json.loads(TABLE.read_text())
    return table


def write(table: Table) -> None:
    """One row a line."""
    rows = (f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.items())
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def refreshed(table: Table, version: str) -> Table:
    """The table, as the sources and the installed torch, which has this version, say."""
    names, overrides = used()
    found = kinds(sorted(names))
    fresh: Table = {}
    for name, files in names.items():
        seen = {**table.get(name, {}).get("seen", {}), version: found[name]}
        if name in OF_BUILDS:
            seen = {}
        elif name in overrides and set(seen.values()) == {"absent"}:
            continue  # the class's own method
        fresh[name] = {"by": files, "seen": {each: seen[each] for each in sorted(seen, key=_number)}}
    return fresh


def differences(table: Table, fresh: Table) -> list[str]:
    lines = [f"{name} is used nowhere, and has a row" for name in table.keys() - fresh.keys()]
    for name, row in fresh.items():
        before = table.get(name, {"by": [], "seen": {}})
        if row["by"] != before["by"]:
            lines.append(
                f"{name} is used by {', '.join(row['by'])} (the table says {', '.join(before['by']) or 'nobody'})"
            )
        lines += [
            f"{name} is {kind!r} in {version} (the table says {_expected(before, version)!r})"
            for version, kind in row["seen"].items()
            if _expected(before, version) != kind
        ]
    return lines


def _expected(row: dict[str, Any], version: str) -> str:
    """What the newest older version has, if the table does not know this one."""
    older = [each for each in row["seen"] if _number(each) <= _number(version)]
    return row["seen"][max(older, key=_number)] if older else "nothing"


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def installed_version() -> str:
    """The minor version: 2.13."""
    return ".".join(metadata.version("torch").split(".")[:2])
