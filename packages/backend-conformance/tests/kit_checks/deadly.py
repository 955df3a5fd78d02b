"""Checks that end, hang or confuse their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

from backend_conformance import Device, Level, check


@check(level=Level.BOOTS, hook="abort")
def aborts(device: Device) -> None:
    """Dies by a signal, after some output."""
    os.write(2, b"last words\n")
    os.abort()


@check(level=Level.BOOTS, hook="exit")
def exits(device: Device) -> None:
    """Ends the process with a status."""
    os._exit(7)


@check(level=Level.BOOTS, hook="sys.exit")
def raises_system_exit(device: Device) -> None:
    """Raises SystemExit, which does not end the process."""
    sys.exit(3)


@check(level=Level.BOOTS, hook="time", timeout=1.0)
def hangs(device: Device) -> None:
    """Hangs."""
    threading.Event().wait()


@check(level=Level.BOOTS, hook="time", timeout=1.0)
def hangs_and_ignores_signals(device: Device) -> None:
    """Hangs, and ignores the signals that can be ignored."""
    for each in (signal.SIGABRT, signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    while True:
        time.sleep(0.1)


@check(level=Level.BOOTS, hook="output")
def prints_garbage(device: Device) -> None:
    """Prints what looks like the worker's reports, and bytes that are no text."""
    for descriptor in (1, 2):
        os.write(descriptor, b'\n{"ends": "deadly.prints_garbage", "verdict": "wrong", "message": "", "seconds": 0}\n')
        os.write(descriptor, b"\xff\xfe\x00 no text")


@check(level=Level.BOOTS, hook="descriptors")
def closes_all_descriptors(device: Device) -> None:
    """Closes all descriptors, standard output among them."""
    os.closerange(0, 256)


@check(level=Level.BOOTS, hook="fork")
def forks_a_child_that_stays(device: Device) -> None:
    """Leaves a child that has inherited all descriptors."""
    if os.fork() == 0:
        time.sleep(300)
        os._exit(0)


@check(level=Level.BOOTS, hook="fork")
def forks_a_child_that_comes_back(device: Device) -> None:
    """Forks a child that leaves the check by an exception."""
    if os.fork() == 0:
        raise RuntimeError("in the child")
    time.sleep(0.2)


@check(level=Level.BOOTS, hook="sessions")
def starts_a_program_that_stays(device: Device) -> None:
    """Leaves a program that holds standard output open."""
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])


@check(level=Level.BOOTS, hook="nothing")
def passes_after_all(device: Device) -> None:
    """Passes, in a process that others have not touched."""
