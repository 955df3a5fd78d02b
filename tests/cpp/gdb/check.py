"""Run by gdb after tools/gdb/openreg_gdb.py, on the program of scene.cpp: its commands show what waits for what."""

from __future__ import annotations

import re
import sys

import gdb

EXPECTED = {
    "openreg streams": [
        r"openreg:0 stream 0; idle; \d of \d commands completed; failed in test_function",
        r"openreg:0 stream 1; running; 0 of \d commands completed; next: run test_blocking_function; run by thread \d+",
        r"openreg:0 stream 2; parked; 0 of \d+ commands completed; next: wait for fence of openreg:0 stream 1,",
        r"openreg:1 stream 1; parked; 0 of \d commands completed; next: wait for fence of openreg:0 stream 2,",
        r"    waits for fence of openreg:0 stream 2, command 41 -> fence of openreg:0 stream 1, command 1 -> running: "
        r"run test_blocking_function, by thread \d+",
        r"openreg:1 stream 2; parked; 0 of 1 commands completed; next: wait for fence of \"a collective\"",
        r"    waits for fence of \"a collective\" -> signalled from outside the device",
    ],
    "openreg fences": [
        r"0x\w+ fence of openreg:0 stream 1, command 1; \d references; awaited by openreg:0 stream 2\b",
        r"0x\w+ fence of openreg:0 stream 2, command 41; \d references; awaited by openreg:1 stream 1\b",
        r"0x\w+ fence of \"a collective\"; 2 references; awaited by openreg:1 stream 2",
    ],
    "openreg engines": [
        r"compute engines: \d threads",
        r"copy engines: 1 threads",
        r"scheduler's mutex: free",
    ],
    "openreg heap 0 blocks": [
        r"openreg:0: 6.0 MiB reserved of 64.0 MiB in 2 segments; 1.0 KiB held, 3.0 MiB pending",
        r"    segment 0x\w+, 4.0 MiB, large, of openreg:0 stream 1: 1 pending \(3.0 MiB\), 1 free \(1.0 MiB\)",
        r"        pending 0x\w+, 3.0 MiB, 3145728 bytes requested, pending marks of other streams: 1",
        r"        held 0x\w+, 1.0 KiB, 1000 bytes requested",
    ],
    "print outside.fence_[0]": [r"\$\d+ = fence of \"a collective\""],
}


def missing(command: str, lines: list[str]) -> list[str]:
    """Complaints about what the command does not print."""
    output = gdb.execute(command, to_string=True)
    if all(re.search(f"^{line}", output, re.M) for line in lines):
        return []
    return [f"{command}: no line matches {line}" for line in lines if not re.search(f"^{line}", output, re.M)] + [
        output
    ]


def main() -> int:
    for command in ("set confirm off", "break everything_waits", "run", "frame function main"):
        gdb.execute(command)
    complaints = [line for command, lines in EXPECTED.items() for line in missing(command, lines)]
    print(*complaints, sep="\n")
    gdb.execute("kill")
    return 1 if complaints else 0


try:
    status = main()
except gdb.error as error:
    print(f"gdb: {error}")
    status = 1
sys.stdout.flush()
gdb.execute(f"quit {status}")
