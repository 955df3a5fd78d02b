"""Counts the instructions of one call with valgrind's callgrind, independently of the load of the machine.

    python benchmarks/instructions.py [--device openreg] [--case REGEX] [--functions 25]

Each case runs twice in a separate process, with two numbers of calls: the difference is the cost of the calls, without
the start of the process. The calling thread and the other threads (engines, autograd's) are counted separately: the
first column is the cost of a launch for the program. `--functions` lists the functions of the calling thread that
execute most instructions.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

FEW, MANY = 200, 900  # below the capacity of a stream, so no launch waits for room


def cases(device: str) -> dict[str, Callable[[], object]]:
    """The calls to count, by name."""
    import torch

    small, other = torch.ones(16, device=device), torch.ones(16, device=device)
    square = torch.ones(32, 32, device=device)
    layer = torch.nn.Linear(32, 32, device=device)
    x = torch.ones(8, 32, device=device, requires_grad=True)

    def linear_and_back() -> None:
        layer(x).backward(torch.ones(8, 32, device=device))

    return {
        "add.Tensor of 16": lambda: torch.add(small, other),
        "mm of 32x32": lambda: torch.mm(square, square),
        "linear of 8x32, forward": lambda: layer(x),
        "linear of 8x32, forward and backward": linear_and_back,
        "empty of 1 KB": lambda: torch.empty(256, device=device),
    }


def run_case(device: str, name: str, calls: int) -> None:
    """Runs the calls, in the process that is counted. Commands still in the queue at the end are dropped."""
    import torch

    torch.set_num_threads(1)
    call = cases(device)[name]
    for _ in range(calls):
        call()


def count(device: str, name: str, calls: int, folder: Path) -> tuple[Counter[str], int]:
    """Instructions of the calling thread by function, and those of all other threads."""
    out = folder / f"out.{calls}"
    command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}"]
    command += [sys.executable, __file__, "--device", device, "--run", name, str(calls)]
    # A fixed seed, because Python's dictionaries depend on the hashes of strings.
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "0"})
    functions: Counter[str] = Counter()
    others = 0
    for file in sorted(folder.glob(f"{out.name}-*")):
        if file.name.endswith("-01"):
            functions = self_costs(file)
        else:
            others += sum(self_costs(file).values())
    return functions, others


def self_costs(file: Path) -> Counter[str]:
    """The cost of each function in a callgrind file, without its callees."""
    command = ["callgrind_annotate", "--threshold=100", "--auto=no", file]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace").stdout
    costs: Counter[str] = Counter()
    # "21,172 (16.73%)  source:function [library]"
    for cost, function in re.findall(r"^ *([\d,]+) \([ \d.]+%\)  [^:\n]*:(.*?)(?: \[/.*\])?$", printed, re.M):
        costs[function] += int(cost.replace(",", ""))
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="openreg")
    parser.add_argument("--case", default="", help="a regular expression")
    parser.add_argument("--functions", type=int, default=0, help="number of functions to list for each case")
    parser.add_argument("--run", nargs=2, metavar=("NAME", "CALLS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_case(arguments.device, arguments.run[0], int(arguments.run[1]))
        return
    print(f"{'instructions per call':40} {'calling thread':>15} {'other threads':>15}")
    for name in cases("cpu"):
        if not re.search(arguments.case, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            few, few_others = count(arguments.device, name, FEW, Path(folder))
            many, many_others = count(arguments.device, name, MANY, Path(folder))
        calls = MANY - FEW
        host = (sum(many.values()) - sum(few.values())) / calls
        print(f"{name:40} {host:15,.0f} {(many_others - few_others) / calls:15,.0f}", flush=True)
        difference = Counter({function: (many[function] - few[function]) / calls for function in many})
        for function, cost in difference.most_common(arguments.functions):
            print(f"    {cost:9.0f}  {function[:100]}")


if __name__ == "__main__":
    main()
