"""What a test requests of the device: the fixture, the marker and the command-line options."""

from __future__ import annotations

import argparse
import os
import threading
from typing import Any

import pytest

SETTINGS = (
    "devices",
    "memory",
    "engines",
    "launch_blocking",
    "cpu_fallback",
    "debug_memory",
    "fault_message",
    "stacks",
    "trace_records",
    "schedule",
    "detect_races",
    "faults",
    "sticky_errors",
    "executor",
    "compute",
    "fake_world",
)
"""The keywords of `@pytest.mark.openreg` that stand for the TORCH_OPENREG_ variable of the same name."""

_OF_THE_PLUGIN = ("sync_debug", "leaks", "races")
_SYNC_DEBUG_MODES = ("default", "warn", "error")


def is_watching(options: argparse.Namespace) -> bool:
    """Whether the command line requests the device: then all tests are watched, and it must be available."""
    return bool(
        options.openreg
        or options.openreg_leaks
        or options.openreg_debug_memory
        or options.openreg_races
        or options.openreg_schedules is not None
        or options.openreg_oom_sweep
        or options.openreg_sync_debug != "default"
    )


def asks_for_device(item: pytest.Item) -> bool:
    """Whether the test itself requests the device, by the fixture or by a marker."""
    # The device of openreg-cuda can be measured, too.
    of_cuda = os.environ.get("OPENREG_CUDA", "0") not in ("", "0")
    markers = ("openreg", "openreg_fault", *(() if of_cuda else ("openreg_fits",)))
    return "openreg" in getattr(item, "fixturenames", ()) or any(map(item.get_closest_marker, markers))


def faults(item: pytest.Item) -> list[str]:
    """What the test's markers `openreg_fault` specify."""
    return [each for marker in item.iter_markers("openreg_fault") for each in marker.args]


def sweeps(item: pytest.Item) -> int:
    """How many of the test's allocations fail one after the other, at most."""
    if not item.config.option.openreg_oom_sweep or item.get_closest_marker("openreg_fault") is not None:
        return 0
    return most_of_sweep(item.config)


def most_of_sweep(config: pytest.Config) -> int:
    """The limit for all tests. Raises UsageError if the configuration is malformed."""
    text = str(config.getini("openreg_oom_sweep_most"))
    if not text.isdecimal() or int(text) == 0:
        raise pytest.UsageError(f"openreg: invalid openreg_oom_sweep_most (got {text!r}, expected a number from 1)")
    return int(text)


def is_watched(item: pytest.Item) -> bool:
    return is_watching(item.config.option) or asks_for_device(item)


def arguments(item: pytest.Item) -> dict[str, Any]:
    """The keywords of the test's markers. Those of the function take precedence over those of its class and module."""
    found: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("openreg"))):
        found |= marker.kwargs
    return found


def settings(item: pytest.Item) -> dict[str, str]:
    """The environment variables that the test's markers request."""
    return {
        f"TORCH_OPENREG_{name.upper()}": str(int(value)) if isinstance(value, bool) else str(value)
        for name, value in arguments(item).items()
        if name in SETTINGS
    }


def differing_settings(item: pytest.Item) -> dict[str, str]:
    """The `settings` that differ from the environment, whose values this process uses."""
    return {name: value for name, value in settings(item).items() if os.environ.get(name) != value}


def sync_debug_mode(item: pytest.Item) -> str:
    return str(arguments(item).get("sync_debug", item.config.option.openreg_sync_debug))


def timeout(config: pytest.Config) -> float:
    """Seconds that the last work of a test may take. Raises UsageError if the configuration is malformed."""
    text = config.getini("openreg_timeout")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < threading.TIMEOUT_MAX:
        raise pytest.UsageError(f"openreg: invalid openreg_timeout (got {text!r}, expected a number of seconds)")
    return seconds


def repeats_all(config: pytest.Config) -> bool:
    """Whether --openreg-schedules applies to all tests. Raises UsageError if an option is malformed."""
    seeds = config.option.openreg_schedules
    if seeds is not None and seeds < 0:
        raise pytest.UsageError(f"openreg: invalid --openreg-schedules (got {seeds}, expected a number of seeds)")
    which = config.getini("openreg_schedules")
    if which not in ("marked", "all"):
        raise pytest.UsageError(f"openreg: invalid openreg_schedules (got {which!r}, expected marked or all)")
    return bool(which == "all")


def looks_for_leaks(item: pytest.Item) -> bool:
    return bool(arguments(item).get("leaks", item.config.option.openreg_leaks))


def looks_for_races(item: pytest.Item) -> bool:
    return bool(arguments(item).get("races", item.config.option.openreg_races))


def check_marker(item: pytest.Item) -> None:
    """Raises UsageError if a marker of the test is malformed."""
    for marker in item.iter_markers("openreg_fault"):
        if marker.kwargs or not marker.args:
            example = '@pytest.mark.openreg_fault("error@launch:*,times=2")'
            _refuse(item, f"invalid openreg_fault: it takes specifications, as in {example}")
    for marker in item.iter_markers("openreg"):
        if marker.args:
            _refuse(item, f"the marker accepts keywords only (got {marker.args[0]!r})")
        for name, value in marker.kwargs.items():
            if name in SETTINGS:
                _check(item, name, value, isinstance(value, (bool, int, str)), "a number or a string")
            elif name in ("leaks", "races"):
                _check(item, name, value, isinstance(value, bool), "True or False")
            elif name == "sync_debug":
                _check(item, name, value, value in _SYNC_DEBUG_MODES, f"one of {', '.join(_SYNC_DEBUG_MODES)}")
            else:
                _refuse(
                    item, f"unknown keyword (got {name!r}, expected one of {', '.join((*SETTINGS, *_OF_THE_PLUGIN))})"
                )


def _check(item: pytest.Item, name: str, value: object, allowed: bool, expected: str) -> None:
    if not allowed:
        _refuse(item, f"invalid {name} (got {value!r}, expected {expected})")


def _refuse(item: pytest.Item, problem: str) -> None:
    raise pytest.UsageError(f"openreg: {item.nodeid}: {problem}")
