"""Compares openreg with PyTorch's CPU backend: separate processes, alternating, several rounds, medians.

Two OpenMP teams in one process slow each other down, so one process never times both devices. Cases come in groups, and
each group has a process for each device and round, so that the after-effects of a case (freed memory, cached shapes)
reach few other cases. The cases are in the scripts that call `run`, such as compare.py and compiled.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

DEVICES = ("cpu", "openreg")
REPEATS = 5

Step = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """A joint measurement: the names of its results, and a function that returns their seconds on a device.

    The arguments of `measure` are the device and the seconds to spend on repetitions; cases that run once ignore these.
    """

    results: tuple[str, ...]
    measure: Callable[[str, float], list[float]]


Groups = dict[str, list[Case]]


class Result(TypedDict):
    group: str
    cpu: list[float]
    openreg: list[float]
    ratio: float


class Report(TypedDict):
    """The content of the `--json` file; times are in seconds, one for each round."""

    machine: dict[str, str | int]
    torch: str
    threads: int
    rounds: int
    busy_cores_of_others: float
    cases: dict[str, Result]


def synchronize(device: str) -> None:
    import torch

    if device != "cpu":
        torch.accelerator.synchronize()


def timed(device: str, seconds: float, step: Step, calls: int) -> tuple[float, float]:
    """The median seconds of one call, with and without its share of the wait. Warms up first."""
    for _ in range(3):
        step()
    synchronize(device)
    whole: list[float] = []
    launching: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(whole) < REPEATS:
        begin = time.perf_counter()
        for _ in range(calls):
            step()
        launched = time.perf_counter()
        synchronize(device)
        whole.append((time.perf_counter() - begin) / calls)
        launching.append((launched - begin) / calls)
    return statistics.median(whole), statistics.median(launching)


def steady(name: str, make: Callable[[str], Step], calls: int = 1, operations: int = 1) -> Case:
    """Times the step that `make` prepares on the device, with one wait after `calls` calls.

    A step may consist of several operations; the result is the time of one.
    """

    def measure(device: str, seconds: float) -> list[float]:
        return [timed(device, seconds, make(device), calls)[0] / operations]

    return Case((name,), measure)


def steady_and_host(name: str, make: Callable[[str], Step], operations: int) -> Case:
    """Like `steady`, with a wait after each step, and a second result: the host's time before it waits."""

    def measure(device: str, seconds: float) -> list[float]:
        return [value / operations for value in timed(device, seconds, make(device), 1)]

    return Case((name, f"{name}, host time"), measure)


def load_of_others(seconds: float = 1.0) -> float:
    """The number of cores that other processes keep busy while this one sleeps."""

    def busy() -> int:
        first_line = Path("/proc/stat").read_text().splitlines()[0]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first_line.split()[1:9])
        return user + nice + system + irq + softirq + steal

    before = busy()
    time.sleep(seconds)
    return (busy() - before) / os.sysconf("SC_CLK_TCK") / seconds


def processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1] if found else platform.machine()


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options of all scripts that call `run`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--case", default="", metavar="REGEX", help="only cases whose name matches")
    made.add_argument("--seconds", type=float, default=0.4, help="time spent on repetitions of a case (default: 0.4)")
    made.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write the machine, the cases and all rounds to this file, after each round",
    )
    made.add_argument("--anyway", action="store_true", help="measure even on an unsuitable machine (to try the cases)")
    made.add_argument("--measure", nargs=2, metavar=("DEVICE", "GROUP"), help=argparse.SUPPRESS)
    return made


def chosen(groups: Groups, pattern: str) -> Groups:
    """The cases that have a result with a matching name; groups without such a case are dropped."""
    wanted = re.compile(pattern)
    found = {
        group: [case for case in cases if any(wanted.search(name) for name in case.results)]
        for group, cases in groups.items()
    }
    return {group: cases for group, cases in found.items() if cases}


def measure(device: str, cases: list[Case], seconds: float) -> None:
    """Runs in the process of one device, group and round: writes the results to stdout."""
    import torch

    found: dict[str, float] = {}
    for case in cases:
        torch.manual_seed(0)
        found.update(zip(case.results, case.measure(device, seconds), strict=True))
    print(json.dumps(found))


def in_process(device: str, group: str, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, sys.argv[0], "--measure", device, group, "--case", options.case]
    command += ["--seconds", str(options.seconds)]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0" if device == "cpu" else "1"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    return dict(json.loads(output.splitlines()[-1]))


def compare(groups: Groups, options: argparse.Namespace) -> Iterator[Report]:
    """Runs all rounds, and yields after each what has been measured. A busy machine ends it, with a message."""
    limit = 0.15 * cores()
    loads = [load_of_others(2.0)]
    times: dict[str, dict[str, list[float]]] = {}
    for number in range(options.rounds):
        for group in groups:
            for device in DEVICES:
                # The median so far: a busy machine stops the run soon, one short disturbance does not.
                loads.append(load_of_others(0.3))
                if too_busy(loads, limit, options.anyway):
                    return
                if sys.stderr.isatty():
                    print(f"\r\033[Kround {number + 1}: {group}, {device}", end="", file=sys.stderr)
                for name, value in in_process(device, group, options).items():
                    times.setdefault(name, {each: [] for each in DEVICES})[device].append(value)
        yield report_of(groups, number + 1, times, loads)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)


def report_of(groups: Groups, rounds: int, times: dict[str, dict[str, list[float]]], loads: list[float]) -> Report:
    import torch

    group_of = {name: group for group, cases in groups.items() for case in cases for name in case.results}
    return {
        "machine": {"processor": processor(), "cores": cores(), "system": f"{platform.system()} {platform.machine()}"},
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "busy_cores_of_others": round(statistics.median(loads), 3),
        "cases": {
            name: {
                "group": group_of[name],
                "cpu": by_device["cpu"],
                "openreg": by_device["openreg"],
                "ratio": statistics.median(by_device["openreg"]) / statistics.median(by_device["cpu"]),
            }
            for name, by_device in times.items()
        },
    }


def too_busy(loads: list[float], limit: float, anyway: bool) -> bool:
    load = statistics.median(loads)
    if load <= limit or anyway:
        return False
    print(
        f"Other processes keep {load:.2f} cores busy (limit: {limit:.2f}), so times would not be comparable. "
        "Use --anyway to measure nevertheless.",
        file=sys.stderr,
    )
    return True


def microseconds(value: float) -> str:
    return f"{value * 1e6:.0f}" if value >= 1e-4 else f"{value * 1e6:.2f}"


def spread(values: list[float]) -> str:
    return f"{microseconds(min(values))} to {microseconds(max(values))}"


def print_table(report: Report) -> None:
    """Prints a Markdown table with times in microseconds."""
    width = max(len(name) for name in report["cases"])
    print(f"| {'case':{width}} | {'CPU':>9} | {'openreg':>9} | ratio | spread of CPU, openreg |")
    print(f"|{'-' * (width + 2)}|{'-' * 10}:|{'-' * 10}:|------:|---|")
    for name, result in report["cases"].items():
        cpu, openreg = (microseconds(statistics.median(values)) for values in (result["cpu"], result["openreg"]))
        spreads = f"{spread(result['cpu'])}, {spread(result['openreg'])}"
        print(f"| {name:{width}} | {cpu:>9} | {openreg:>9} | {result['ratio']:5.2f} | {spreads} |")
    machine = report["machine"]
    print(
        f"\nmicroseconds, medians of {report['rounds']} rounds; {machine['processor']}, {machine['cores']} cores, "
        f"torch {report['torch']}, {report['threads']} threads; "
        f"other processes kept {report['busy_cores_of_others']:.2f} cores busy"
    )


def run(groups: Groups, options: argparse.Namespace) -> Report | None:
    """Measures, prints and writes the cases of a script. Runs in the parent and in the processes that it starts."""
    groups = chosen(groups, options.case)
    if not groups:
        sys.exit(f"no case matches {options.case!r}")
    if options.measure:
        device, group = options.measure
        measure(device, groups[group], options.seconds)
        return None
    report = None
    for report in compare(groups, options):
        if options.json:  # now: the next round may not come to its end
            options.json.write_text(json.dumps(report, indent=1) + "\n")
    if report is None or report["rounds"] < options.rounds:
        return None
    print_table(report)
    return report
