"""Runs a function as several ranks, each a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from devices import DEVICE


def run_ranks(
    function: Callable[..., Any],
    size: int,
    folder: Path,
    *args: Any,
    backend: str | None = None,
    timeout: int = 60,
    environment: dict[str, str] | None = None,
    expect_exit: dict[int, int] | None = None,
) -> list[Any]:
    """What `function(rank, *args)` returns in each of `size` ranks, of one default process group.

    `backend` "" makes no group. `expect_exit`: the status of ranks that return nothing.
    """
    context = multiprocessing.get_context("forkserver")  # whose processes need not import torch
    context.set_forkserver_preload(["torch.distributed"])
    call = pickle.dumps((function, args))  # its module may use the device when it is imported
    pipes, processes = [], []
    # Read in the process when it has its environment: modules of tests import what reads settings.
    call = pickle.dumps((function, args))
    for rank in range(size):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_main,
            args=(theirs, environment or {}, call, rank, size, str(folder / "store"), backend, timeout),
        )
        process.start()
        theirs.close()
        pipes.append(mine)
        processes.append(process)
    results = [_receive(pipe) for pipe in pipes]
    for process in processes:
        process.join(30)
        if process.is_alive():
            process.kill()
            process.join()
    errors = [f"rank {rank}: {result[1]}" for rank, result in enumerate(results) if result and not result[0]]
    assert not errors, "\n".join(errors)
    wanted = [(expect_exit or {}).get(rank, 0) for rank in range(size)]
    assert [process.exitcode for process in processes] == wanted
    return [result[1] if result else None for result in results]


def run_in_turn(rank: int, *functions: Callable[[int], Any]) -> dict[str, Any]:
    """What each function returns, by its name: one set of processes for many tests."""
    return {function.__name__: function(rank) for function in functions}


def run_on_devices(size: int, folder: Path, *functions: Callable[[int], Any]) -> Callable[[Any], list[Any]]:
    """Runs the functions in turn; rank r is on device r. Returns what gives the ranks' results of a function."""
    environment = {"TORCH_OPENREG_DEVICES": str(size)}
    results = run_ranks(_run_on_device, size, folder, functions, environment=environment)
    return lambda function: [result[function] for result in results]


def collectives_begun() -> int:
    """By the default group on the current device."""
    device = torch.device(DEVICE, torch.accelerator.current_device_index())
    return dist.group.WORLD._get_backend(device)._get_sequence_number_for_group()


def _run_on_device(rank: int, functions: tuple[Callable[[int], Any], ...]) -> dict[Callable[[int], Any], Any]:
    torch.accelerator.set_device_index(rank)
    return {function: function(rank) for function in functions}


def _receive(pipe: Connection) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None


def _main(
    pipe: Connection,
    environment: dict[str, str],
    call: bytes,
    rank: int,
    size: int,
    store: str,
    backend: str | None,
    timeout: int,
) -> None:
    os.environ.update(environment)
    function, args = pickle.loads(call)
    dist.set_debug_level_from_env()  # which torch.distributed asked for when it was loaded
    try:
        function, args = pickle.loads(call)
        if backend != "":
            dist.init_process_group(
                backend, init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=timeout)
            )
        pipe.send((True, function(rank, *args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
