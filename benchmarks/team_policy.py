#!/usr/bin/env python3
"""Simulates thread counts of engines and hosts over recorded programs: from which work on should an engine use a team?

    python benchmarks/team_policy.py [--cores 2 16 64] [--thresholds 0 100 ...] [--start 100] [--leave 0] [--host-fits]
    python benchmarks/team_policy.py --record

A program is a list of commands: stream, host time until the launch, and work, the time that one thread takes
(microseconds). `--record` measures both on the CPU with one thread and writes them to team_policy.json.

The output is the predicted ratio of the program's time on the device to its time on PyTorch's CPU backend, where the
calling thread computes each operator immediately with a team of all cores; below 1 the device is faster. The policy of
an engine is `engine_threads`. The rest is modelled on the device: engines run the commands of a stream in order, and a
waiting host takes over between two commands and computes with its own team.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

RECORDED = Path(__file__).with_suffix(".json")


class Program(TypedDict):
    """The host launches `commands` `steps` times, runs Python for `python` microseconds, and waits."""

    steps: int
    python: float
    commands: list[tuple[int, float, float]]


@dataclass(frozen=True)
class Policy:
    """The parameters of an engine's decision when it begins a command; times in microseconds."""

    threshold: float  # the work from which on a command gets a team; infinity: never
    start: float = 100.0  # the cost of starting an engine's team
    leave: int = 0  # cores that a team leaves free for the host
    host_fits: bool = False  # whether the team of a waiting host takes free cores only, instead of all cores


@dataclass(frozen=True)
class Machine:
    cores: int
    efficiency: float = 0.8  # of each thread of a team
    grain: float = 20.0  # the least work for an additional thread, as in at::parallel_for
    launch: float = 2.0  # the host's cost of a launch, in addition to the program's time

    @property
    def engines(self) -> int:
        return max(1, self.cores - 1)


def engine_threads(work: float, computing: int, machine: Machine, policy: Policy) -> int:
    """The policy: the threads of an engine's next command while `computing` threads run other commands."""
    if work < policy.threshold:
        return 1
    return max(1, min(machine.cores, machine.cores - computing - policy.leave))


def engine_time(work: float, threads: int, machine: Machine, policy: Policy) -> float:
    return work if threads == 1 else policy.start + team_time(work, threads, machine)


def team_time(work: float, threads: int, machine: Machine) -> float:
    """The time of an existing, undisturbed team. It uses only as many threads as have a grain of work each."""
    useful = min(threads, max(1, int(work / machine.grain)))
    return work if useful == 1 else min(work, work / (useful * machine.efficiency))


@dataclass
class Activity:
    """Work that occupies threads: a command of a stream, or the host's own program (no stream)."""

    remaining: float
    threads: int
    stream: int | None
    by_host: bool


@dataclass
class Simulation:
    """A run of a program; the time advances from the end of one activity to that of the next."""

    program: Program
    machine: Machine
    policy: Policy
    time: float = 0.0
    queues: dict[int, deque[float]] = field(default_factory=dict)
    activities: list[Activity] = field(default_factory=list)

    def run(self) -> float:
        commands = self.program["commands"] * self.program["steps"]
        to_launch = deque([(stream, host + self.machine.launch, work) for stream, host, work in commands])
        python = self.program["python"]
        while True:
            if not any(activity.by_host for activity in self.activities):
                if to_launch:
                    self.activities.append(Activity(to_launch[0][1], 1, None, True))
                elif python:
                    self.activities.append(Activity(python, 1, None, True))
                else:
                    self.host_helps()
            self.engines_begin()
            if not self.activities:
                return self.time
            for ended in self.advance():
                if ended.by_host and ended.stream is None:
                    if to_launch:
                        stream, _, work = to_launch.popleft()
                        self.queues.setdefault(stream, deque()).append(work)
                    else:
                        python = 0.0

    def ready(self) -> list[int]:
        """The streams that have a command and are not running."""
        running = {activity.stream for activity in self.activities}
        return [stream for stream, queue in self.queues.items() if queue and stream not in running]

    def computing(self) -> int:
        """The number of threads that run commands."""
        return sum(activity.threads for activity in self.activities if activity.stream is not None)

    def host_helps(self) -> None:
        for stream in self.ready()[:1]:
            work = self.queues[stream].popleft()
            threads = self.machine.cores
            if self.policy.host_fits:
                threads = max(1, threads - self.computing())
            time = team_time(work, threads, self.machine)
            threads = 1 if time == work else threads
            self.activities.append(Activity(time, threads, stream, True))

    def engines_begin(self) -> None:
        busy = sum(not activity.by_host for activity in self.activities)
        for stream in self.ready()[: self.machine.engines - busy]:
            work = self.queues[stream].popleft()
            threads = engine_threads(work, self.computing(), self.machine, self.policy)
            time = engine_time(work, threads, self.machine, self.policy)
            self.activities.append(Activity(time, threads, stream, False))

    def slowdown(self, activity: Activity) -> float:
        """The effect of shared cores: a team waits for its slowest thread, a single thread gets its share."""
        crowd = sum(each.threads for each in self.activities) / self.machine.cores
        return max(1.0, crowd if activity.threads == 1 else math.ceil(crowd))

    def advance(self) -> list[Activity]:
        slowdowns = [self.slowdown(activity) for activity in self.activities]
        step = min(each.remaining * slow for each, slow in zip(self.activities, slowdowns, strict=True))
        self.time += step
        for activity, slow in zip(self.activities, slowdowns, strict=True):
            activity.remaining -= step / slow
        ended = [activity for activity in self.activities if activity.remaining <= 1e-9]
        self.activities = [activity for activity in self.activities if activity.remaining > 1e-9]
        return ended


def cpu_backend(program: Program, machine: Machine) -> float:
    once = sum(host + team_time(work, machine.cores, machine) for _, host, work in program["commands"])
    return once * program["steps"] + program["python"]


def print_table(programs: dict[str, Program], machines: list[Machine], policies: list[Policy]) -> None:
    """Prints, for each machine, a row per program and a column per policy, then the means and the maxima."""
    for machine in machines:
        columns = [f"{policy.threshold:.0f}" if math.isfinite(policy.threshold) else "never" for policy in policies]
        print_row(f"{machine.cores} cores; teams from (us)", columns)
        table = []
        for name, program in programs.items():
            cpu = cpu_backend(program, machine)
            table.append([Simulation(program, machine, policy).run() / cpu for policy in policies])
            print_row(name, [f"{ratio:.2f}" for ratio in table[-1]])
        by_policy = list(zip(*table, strict=True))
        print_row("geometric mean", [f"{statistics.geometric_mean(ratios):.2f}" for ratios in by_policy])
        print_row("worst", [f"{max(ratios):.2f}" for ratios in by_policy])
        print()


def print_row(name: str, cells: list[str]) -> None:
    print(f"{name:34}" + "".join(f"{cell:>7}" for cell in cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help=f"measure the programs and write {RECORDED.name}")
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 16, 64])
    parser.add_argument("--thresholds", type=float, nargs="+", default=[0, 100, 200, 500, 1000, 2000, 5000, 20000])
    parser.add_argument("--start", type=float, default=Policy.start, help="cost of an engine's team (us)")
    parser.add_argument("--leave", type=int, default=Policy.leave, help="cores that an engine's team leaves free")
    parser.add_argument("--host-fits", action="store_true", help="a waiting host's team takes free cores only")
    parser.add_argument("--efficiency", type=float, default=Machine.efficiency, help="efficiency of a thread in a team")
    parser.add_argument("--launch", type=float, default=Machine.launch, help="the host's cost of a launch (us)")
    options = parser.parse_args()
    if options.record:
        from record_programs import record

        lines = [f" {json.dumps(name)}: {json.dumps(program)}" for name, program in record().items()]
        RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        return
    programs: dict[str, Program] = json.loads(RECORDED.read_text())
    policy = Policy(math.inf, options.start, options.leave, options.host_fits)
    machines = [Machine(cores, options.efficiency, launch=options.launch) for cores in options.cores]
    policies = [replace(policy, threshold=each) for each in options.thresholds] + [policy]
    print_table(programs, machines, policies)


if __name__ == "__main__":
    main()
