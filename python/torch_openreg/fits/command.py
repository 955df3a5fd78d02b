"""``fits``: runs a program for some steps without its large computations, and says whether it fits on a GPU.

PROGRAM is a Python file, or -m and a module, or another command such as torchrun, whose processes are all measured.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from . import text
from .page import page
from .profiles import PROFILES, parse as parse_profile, with_memory
from .report import VERSION, Ended
from .run import Environment, FitsError, Program, Run, run
from .search import Found, parse as parse_search, search, table
from .verdict import Verdict, judge, largest, sentence, size

STEPS = 3
SCHEDULES = {
    "best": ("the device keeps up with the host", {"TORCH_OPENREG_LAUNCH_BLOCKING": "1"}),
    "worst": ("the host runs far ahead", {"TORCH_OPENREG_SCHEDULE": "latest", "TORCH_OPENREG_LAUNCH_BLOCKING": "0"}),
}
"""The cases of --schedules: what happens, and the variables that make it happen."""


@dataclass(frozen=True)
class Options:
    """The command line.

    Attributes:
        profiles: the GPUs that are asked about, from the smallest to the largest.
        devices: the number of devices of a process; None: the default.
    """

    program: Program
    profiles: list[str]
    devices: int | None
    steps: int
    compute: bool
    quiet: bool
    json: Path | None
    html: Path | None
    search: str | None
    schedules: bool
    tries: list[list[str]]


@dataclass(frozen=True)
class Case:
    """A run under one of `SCHEDULES`, in bytes: the peaks of what tensors held, and of what the allocator held."""

    name: str
    verdicts: list[Verdict]
    allocated: int
    reserved: int


@dataclass(frozen=True)
class Comparison:
    """A run with further arguments, beside the one without; `needed` is what the allocator reserved, in bytes, None if
    the program ran out of memory."""

    arguments: list[str]
    verdicts: list[Verdict]
    needed: int | None


def main(arguments: Sequence[str], prog: str, settings: Environment, names: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 if the program fits on all GPUs that were named, or on one if none was; 1 if not; that
    of the program if it failed otherwise; 2 for wrong use.

    Args:
        arguments: those after ``fits``.
        prog: how the user has called it.
        settings: of the device.
        names: the profiles that the device can have; None: all whose memory is known.
    """
    known = [name for name in with_memory() if names is None or name in names]
    try:
        options = _parse(arguments, prog, known)
        if options.search is not None:
            return _search(options, settings)
        return _report(options, settings)
    except FitsError as error:
        print(f"openreg: {error}", file=sys.stderr)
        return 2


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        usage=f"{prog} [options] PROGRAM [arguments]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--profile",
        metavar="NAME[:N][,...]",
        help="the GPUs to ask about, and how many devices a process has, as in h100:8 or a100-40,a100 (default: all)",
    )
    add("--steps", type=int, default=STEPS, metavar="N", help="end after this many optimizer steps (default 3)")
    add("--json", type=Path, metavar="FILE", help="write the report as JSON")
    add("--html", type=Path, metavar="FILE", help="write the report as one page, which needs no network")
    add(
        "--search",
        metavar="NAME=LOW..HIGH",
        help="find the largest whole number that fits, put where the arguments have {NAME} and into the environment "
        "variable NAME",
    )
    add(
        "--try",
        action="append",
        default=[],
        dest="tries",
        metavar="ARGUMENTS",
        help="also run the program with these arguments in addition, and say what that changes (repeatable)",
    )
    add("--schedules", action="store_true", help="also run the best and the worst case of how far the device is behind")
    add("--compute", action="store_true", help="compute everything, as without fits, which is slow")
    add("--quiet", action="store_true", help="print no progress")
    return parser


_FLAGS = ("--compute", "--schedules", "--quiet", "--help", "-h")  # the options without a value


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options, and the program with its arguments, which may look like options: ``-m module --steps 5``."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-m":
        if arguments[at] == "--":
            return list(arguments[:at]), list(arguments[at + 1 :])
        at += 1 if arguments[at] in _FLAGS or "=" in arguments[at] else 2
    return list(arguments[:at]), list(arguments[at:])


def _parse(arguments: Sequence[str], prog: str, known: list[str]) -> Options:
    parser = _parser(prog)
    given, program = _split(arguments)
    found = parser.parse_args(given)
    if not program:
        raise FitsError(f"no program was given; {prog} --help describes the command")
    if found.steps < 1:
        raise FitsError(f"--steps is out of range (got {found.steps}, expected a number from 1)")
    profiles, devices = list(known), None
    if found.profile is not None:
        profiles = []
        for part in found.profile.split(","):
            try:
                name, count = parse_profile(part, known, "h100:8")
            except ValueError as error:
                raise FitsError(f"--profile is malformed ({error})") from None
            profiles.append(name)
            devices = devices if count is None else count
        profiles.sort(key=lambda name: PROFILES[name].usable)
    environment = {} if found.compute else {"TORCH_OPENREG_COMPUTE": "0"}
    return Options(
        program=Program(tuple(program), environment),
        profiles=list(dict.fromkeys(profiles)),
        devices=devices,
        steps=found.steps,
        compute=found.compute,
        quiet=found.quiet,
        json=found.json,
        html=found.html,
        search=found.search,
        schedules=found.schedules,
        tries=[shlex.split(each) for each in found.tries],
    )


def _say(options: Options, text: str) -> None:
    if not options.quiet:
        print(f"openreg: {text}", file=sys.stderr, flush=True)


def _run(options: Options, settings: Environment, program: Program, profile: str, nccl: int = 0) -> Run:
    environment = {**program.environment, **settings(profile, options.devices)}
    return run(replace(program, environment=environment), profile, options.steps, options.quiet, nccl)


def _verdict(options: Options, settings: Environment, program: Program, profile: str, done: Run) -> Verdict:
    """The verdict for a profile. Where a roomy run does not decide, the program runs with that profile's memory."""
    verdict = judge(profile, done.reports, done.usable)
    if verdict.fits is None and verdict.usable < done.usable:
        _say(options, f"{profile} is close to what is needed: running with its memory")
        close = _run(options, settings, program, profile, verdict.nccl)
        verdict = judge(profile, close.reports or done.reports, verdict.usable, verdict.nccl)
    return verdict


def _verdicts(options: Options, settings: Environment, program: Program, done: Run) -> list[Verdict]:
    return [_verdict(options, settings, program, profile, done) for profile in options.profiles]


def _measure(options: Options, settings: Environment, program: Program) -> tuple[Run, list[Verdict]]:
    """Runs the program with the largest GPU's memory. Without reports, it has failed before it used a device."""
    done = _run(options, settings, program, options.profiles[-1])
    return done, _verdicts(options, settings, program, done) if done.reports else []


def _failed(done: Run) -> bool:
    """Whether the program failed for another reason than memory. A rank may fail because another one has ended."""
    endings = {report.ended for report in done.reports}
    return done.status != 0 and not endings & {Ended.OUT_OF_MEMORY, Ended.STEPS}


def _report(options: Options, settings: Environment) -> int:
    done, verdicts = _measure(options, settings, options.program)
    if not verdicts:
        return done.status
    comparisons = []
    for arguments in [] if _failed(done) else options.tries:
        _say(options, f"running with {shlex.join(arguments)}")
        program = options.program.with_arguments(arguments)
        other, others = _measure(options, settings, program)
        if not others or _failed(other):
            raise FitsError(f"the program fails with {shlex.join(arguments)} (exit status {other.status})")
        comparisons.append(Comparison(arguments, others, _needed(other)))
    cases = [_case(options, settings, name) for name in SCHEDULES if options.schedules and not _failed(done)]
    for line in text.lines(done.reports, verdicts):
        print(line)
    for line in (*_case_lines(cases), *_comparison_lines(comparisons, _needed(done))):
        print(line)
    _write(options, as_json(done, verdicts, comparisons, cases, None), done, verdicts)
    if _failed(done):
        return done.status
    fits = [bool(verdict.fits) for verdict in verdicts]
    return 0 if (all(fits) if len(options.profiles) < len(with_memory()) else any(fits)) else 1


def _case(options: Options, settings: Environment, name: str) -> Case:
    what, variables = SCHEDULES[name]
    _say(options, f"running the {name} case, in which {what}")
    program = replace(options.program, environment={**options.program.environment, **variables})
    done, verdicts = _measure(options, settings, program)
    if not verdicts or _failed(done):
        raise FitsError(f"the program fails in the {name} case (exit status {done.status})")
    _, device = largest(done.reports)
    return Case(name, verdicts, device.allocated, device.reserved)


def _case_lines(cases: Sequence[Case]) -> list[str]:
    lines = ["", "by schedule"] if cases else []
    for case in cases:
        peak = f"{size(case.allocated)} in tensors, {size(case.reserved)} reserved"
        lines.append(f"  {case.name} case, {SCHEDULES[case.name][0]}: {peak}; {sentence(case.verdicts)}")
    return lines


def _needed(done: Run) -> int | None:
    report, device = largest(done.reports)
    return None if report.out_of_memory else device.reserved


def _comparison_lines(comparisons: Sequence[Comparison], needed: int | None) -> list[str]:
    lines = ["", "what would help"] if comparisons else []
    for one in comparisons:
        parts = [sentence(one.verdicts)]
        if needed is not None and one.needed is not None:
            change = one.needed - needed
            less = f"{size(-change)} less" if change < 0 else f"{size(change)} more" if change else "the same"
            parts.insert(0, less)
        lines.append(f"  {shlex.join(one.arguments)}: {'; '.join(parts)}")
    return lines


def _search(options: Options, settings: Environment) -> int:
    assert options.search is not None
    range = parse_search(options.search)
    profile = options.profiles[0]
    if options.schedules:
        raise FitsError("--schedules cannot be combined with --search: run it with the value that was found")
    if len(options.profiles) > 1:
        raise FitsError("--search needs one GPU to fit on (expected --profile NAME, as in --profile h100)")
    last: list[tuple[Run, Verdict]] = []

    def attempt(value: int) -> Verdict:
        program = options.program.with_value(range.name, value)
        done = _run(options, settings, program, profile)
        if not done.reports or _failed(done):
            raise FitsError(f"the program fails with {range.name}={value} (exit status {done.status})")
        verdict = _verdict(options, settings, program, profile, done)
        _say(options, f"{range.name}={value}: {verdict}")
        if verdict.fits or not last:
            last[:] = [(done, verdict)]
        return verdict

    found = search(range, attempt)
    for line in table(found):
        print(line)
    print()
    if found.best is None:
        print(f"{range.name}={range.low} does not fit on {profile}")
    else:
        print(f"the largest {range.name} that fits on {profile}: {found.best}")
    done, verdict = last[0]
    _write(options, as_json(done, [verdict], [], [], found), done, [verdict])
    return 0 if found.best is not None else 1


def _write(options: Options, data: dict[str, Any], done: Run, verdicts: list[Verdict]) -> None:
    if options.json is not None:
        options.json.write_text(json.dumps(data, indent=1) + "\n")
    if options.html is not None:
        options.html.write_text(page(done.reports, verdicts), encoding="utf-8")


def as_json(
    done: Run,
    verdicts: Sequence[Verdict],
    comparisons: Sequence[Comparison],
    cases: Sequence[Case],
    found: Found | None,
) -> dict[str, Any]:
    """The report as JSON (docs/fits.md has its fields)."""
    report, device = largest(done.reports)
    return {
        "version": VERSION,
        "summary": sentence(verdicts),
        "verdicts": [{**asdict(verdict), "at": asdict(verdict.at)} for verdict in verdicts],
        "rank": report.rank,
        "device": device.index,
        "reports": [asdict(each) for each in done.reports],
        "tries": [{**asdict(each), "summary": sentence(each.verdicts)} for each in comparisons],
        "schedules": [{**asdict(each), "summary": sentence(each.verdicts)} for each in cases],
        "search": None if found is None else asdict(found),
    }
