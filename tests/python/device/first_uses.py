"""Runs each first use of the device in a process of its own, forked from this one, which has imported torch only.

Reads a JSON list of [code, in_another_thread], and writes one of what was found for each.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch

openreg = torch.openreg
SECONDS = 100  # a call that hangs ends its process
NANOSECONDS = 3_000_000


def run(code: str) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, {"torch": torch, "openreg": openreg, "os": os})


def run_in_thread(code: str) -> None:
    errors: list[BaseException] = []

    def target() -> None:
        try:
            run(code)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def waits(synchronize: Callable[[], object]) -> bool:
    event = torch.Event("openreg")
    stream = torch.Stream("openreg:0")
    with stream:
        openreg._sleep(NANOSECONDS)
        event.record()
    openreg.set_device(0)
    synchronize()
    return event.query()


def look_in_a_forked_child() -> dict[str, Any]:
    def look() -> dict[str, Any]:
        in_bad_fork = openreg._is_in_bad_fork()
        try:
            usable = torch.arange(3, device="openreg").sum().item() == 3
        except RuntimeError as error:
            usable = "forked subprocess" not in str(error)
        return {"in_bad_fork": in_bad_fork, "usable_in_child": usable}

    return in_child(look)


def in_child(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            found = function()
        except BaseException:
            found = {"error": traceback.format_exc()}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(text) if status == 0 else {"error": f"exit status {status}"}


def look_after(code: str, in_another_thread: bool) -> dict[str, Any]:
    (run_in_thread if in_another_thread else run)(code)
    found = {
        "used": openreg.is_initialized(),
        "_initialized": openreg._initialized,
        "has_statistics": bool(torch.accelerator.memory_stats(0)),
        "has_own_statistics": bool(openreg.memory_stats(0)),
    }
    assert openreg.is_initialized() == found["used"], "a question is a use"
    found |= look_in_a_forked_child()
    found["waits"] = [
        waits(openreg.synchronize),
        waits(lambda: openreg.synchronize(0)),
        waits(lambda: torch.accelerator.synchronize(0)),
        waits(torch.accelerator.synchronize),
    ]
    found["waits_in_thread"] = []
    thread = threading.Thread(
        target=lambda: found["waits_in_thread"].append(waits(lambda: torch.accelerator.synchronize(0)))
    )
    thread.start()
    thread.join()
    found["computes"] = (torch.arange(4, device="openreg") + 1).tolist() == [1, 2, 3, 4]
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    uses = json.load(sys.stdin)
    json.dump([in_child(lambda use=use: look_after(*use)) for use in uses], sys.stdout)
