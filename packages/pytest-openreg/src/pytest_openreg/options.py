"""The options of the command line and of the configuration."""

from __future__ import annotations

import pytest


def declare(parser: pytest.Parser) -> None:
    group = parser.getgroup("openreg", "tests on the accelerator openreg")
    group.addoption(
        "--openreg",
        action="store_true",
        help="watch the device in all tests: a device error that a test did not collect fails that test. "
        "If the device is missing, the run fails.",
    )
    group.addoption(
        "--openreg-leaks",
        action="store_true",
        help="also fail tests that leave device memory in use, another stream or device current, or a process group",
    )
    group.addoption(
        "--openreg-sync-debug",
        choices=("default", "warn", "error"),
        default="default",
        help="what happens on an implicit synchronization in a test: nothing, a warning, or an error",
    )
    group.addoption(
        "--openreg-races",
        action="store_true",
        help="fail tests with unsynchronized accesses to the same memory",
    )
    group.addoption(
        "--openreg-debug-memory",
        action="store_true",
        help="find invalid uses of device memory (TORCH_OPENREG_DEBUG_MEMORY=1); slow",
    )
    group.addoption(
        "--openreg-schedules",
        type=int,
        metavar="N",
        help="run each test with the marker openreg_schedules under the schedules latest and random:1 to random:N",
    )
    group.addoption(
        "--openreg-oom-sweep",
        action="store_true",
        help="rerun each test that passes, with its 1st, 2nd, ... allocation of device memory failing, and fail it if "
        "that leaves memory, streams or errors behind",
    )
    parser.addini(
        "openreg_oom_sweep_most",
        "the number of allocations of a test that --openreg-oom-sweep makes fail, at most",
        default="1000",
    )
    parser.addini(
        "openreg_schedules",
        "the tests that --openreg-schedules repeats: marked or all",
        default="marked",
    )
    parser.addini(
        "openreg_timeout",
        "seconds that a test's last work on the device may take after the test",
        default="120",
    )
