"""Counts the instructions of one call with valgrind's callgrind, independently of the load of the machine.

    python benchmarks/instructions.py [--device openreg] [--case REGEX] [--functions 25] [--idle]

Each case runs twice in a separate process, with two numbers of calls: the difference is the cost of the calls, without
the start of the process. The calling thread and the other threads (engines, autograd's) are counted separately: the
first column is the cost of a launch for the program. `--functions` lists the functions of the calling thread that
execute most instructions. `--idle` also counts the calling thread of a device that does not compute
(TORCH_OPENREG_COMPUTE=0), where a launch should cost no more.
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

    # Too large to be computed by a device that does not compute.
    large, result = torch.ones(64, 1024, device=device), torch.empty(64, 1024, device=device)
    matrix = torch.ones(256, 256, device=device)
    parameters = [torch.ones(64, 64, device=device, requires_grad=True) for _ in range(4)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD(parameters, lr=0.1, foreach=True)

    def linear_and_back() -> None:
        layer(x).backward(torch.ones(8, 32, device=device))

    return {
        "add.Tensor of 16": lambda: torch.add(small, other),
        "add.Tensor of 64x1024": lambda: torch.add(large, large),
        "add_.Tensor of 64x1024": lambda: large.add_(result),
        "add.out of 64x1024": lambda: torch.add(large, large, out=result),
        "sum of 64x1024": lambda: large.sum(),
        "copy_ of 64x1024": lambda: result.copy_(large),
        "SGD of 4 parameters, foreach": lambda: optimizer.step(),
        "mm of 32x32": lambda: torch.mm(square, square),
        "mm of 256x256": lambda: torch.mm(matrix, matrix),
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


def count(device: str, name: str, calls: int, folder: Path, *, computes: bool) -> tuple[Counter[str], int]:
    """Instructions of the calling thread by function, and those of all other threads."""
    out = folder / f"out.{calls}.{int(computes)}"
    command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={out}"]
    command += [sys.executable, __file__, "--device", device, "--run", name, str(calls)]
    # A fixed seed, because Python's dictionaries depend on the hashes of strings.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "TORCH_OPENREG_COMPUTE": str(int(computes))}
    subprocess.run(command, check=True, capture_output=True, env=environment)
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


def per_call(device: str, name: str, *, computes: bool) -> tuple[Counter[str], float]:
    """As count(), for one call."""
    with tempfile.TemporaryDirectory() as folder:
        few, few_others = count(device, name, FEW, Path(folder), computes=computes)
        many, many_others = count(device, name, MANY, Path(folder), computes=computes)
    calls = MANY - FEW
    host = Counter({function: (many[function] - few[function]) / calls for function in many | few})
    return host, (many_others - few_others) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="openreg")
    parser.add_argument("--case", default="", help="a regular expression")
    parser.add_argument("--functions", type=int, default=0, help="number of functions to list for each case")
    parser.add_argument("--idle", action="store_true", help="also count a device that does not compute")
    parser.add_argument("--run", nargs=2, metavar=("NAME", "CALLS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_case(arguments.device, arguments.run[0], int(arguments.run[1]))
        return
    title = f" {'not computing':>15}" if arguments.idle else ""
    print(f"{'instructions per call':40} {'calling thread':>15} {'other threads':>15}{title}")
    for name in cases("cpu"):
        if not re.search(arguments.case, name):
            continue
        host, others = per_call(arguments.device, name, computes=True)
        idle = f" {per_call(arguments.device, name, computes=False)[0].total():15,.0f}" if arguments.idle else ""
        print(f"{name:40} {host.total():15,.0f} {others:15,.0f}{idle}", flush=True)
        for function, cost in host.most_common(arguments.functions):
            print(f"    {cost:9.0f}  {function[:100]}")


if __name__ == "__main__":
    main()
