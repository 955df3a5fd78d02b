"""The life of a process that uses the device: forks, workers, signals, exit. Each test has processes of its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from children import child_environment
from devices import DEVICE

# Some seconds of work on the current stream.
LONG_WORK = """
import torch
x = torch.rand(1000, 1000, device="openreg")
def launch(n):
    y = x
    for _ in range(n):
        y = (y @ x) / 500
    return y
"""
FORK_ERROR = (
    "Cannot re-initialize openreg in forked subprocess. To use openreg with multiprocessing, "
    "you must use the 'spawn' start method"
)


USES = (
    "torch.openreg.init()",
    "torch.ones(1, device='openreg')",
    "inherited + 1",
    "inherited.cpu()",
    "torch.accelerator.synchronize()",
    "torch.openreg.Stream()",
    "torch.openreg.current_device()",
    "torch.openreg.set_device(1)",
    "torch.accelerator.set_device_index(1)",
    "torch.openreg.current_stream()",
    "torch.openreg.default_stream(1)",
    "torch.openreg.initial_seed()",
    "torch.openreg.get_rng_state()",
    "torch.openreg.memory_summary()",
    "torch.openreg.mem_get_info()",
    "torch.openreg.reset_peak_memory_stats()",
    "torch.Generator('openreg')",
)


def test_each_use_in_a_forked_child_of_a_user_raises(run_python):
    result = run_python(
        "import os, torch\n"
        "inherited = torch.ones(3, device='openreg')\n"
        "torch.accelerator.synchronize()\n"
        f"for use in {USES}:\n"
        "    if os.fork() == 0:\n"
        "        assert torch.openreg._is_in_bad_fork() and not torch.openreg.is_initialized()\n"
        "        torch.openreg._lazy_call(lambda: print('called'))\n"
        "        try: exec(use)\n"
        "        except RuntimeError as error: print(use, error, flush=True)\n"
        "        del inherited\n"
        "        os._exit(0)\n"
        "    assert os.wait()[1] == 0\n"
        "assert inherited.sum().item() == 3\n"
    )
    for use in USES:
        assert f"{use} openreg: {FORK_ERROR}" in result.stdout
    assert "called" not in result.stdout


def test_a_forked_child_of_a_user_gets_no_stream_of_the_pool_and_no_statistics(run_python):
    result = run_python(
        "import os, torch\n"
        "streams = [torch.openreg.Stream() for _ in range(100)]  # all of the pool\n"
        "inherited = torch.ones(3, device='openreg')\n"
        "if os.fork() == 0:\n"
        "    assert torch.openreg.memory_stats() == {} and torch.openreg.memory_allocated() == 0\n"
        "    try: torch.openreg.Stream()\n"
        "    except RuntimeError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "assert os.wait()[1] == 0\n"
        "assert torch.openreg.memory_allocated() == 512\n"
    )
    assert FORK_ERROR in result.stdout


def test_forked_workers_that_never_touch_the_device_work_while_the_engines_run(run_python):
    result = run_python(
        LONG_WORK + "from torch.utils.data import DataLoader, TensorDataset\n"
        "data = TensorDataset(torch.arange(80.0))\n"
        "launch(20)\n"
        "seen = []\n"
        "for (batch,) in DataLoader(data, batch_size=4, num_workers=20):\n"
        "    launch(2)\n"
        "    seen += batch.to('openreg', non_blocking=True).tolist()\n"
        "assert seen == list(range(80))\n",
        PYTHONWARNINGS="ignore:This DataLoader",
    )
    assert result.stderr == ""


@pytest.mark.parametrize("processes", [4, pytest.param(100, marks=pytest.mark.full)])
def test_processes_exit_with_work_in_flight(run_python, processes):
    """Forked before first use, so that many of them are affordable; each ends as any Python program does."""
    result = run_python(
        "import os, sys, torch\n"
        f"for _ in range({processes}):\n"
        "    pid = os.fork()\n"
        "    if pid == 0:\n" + "".join(f"        {line}\n" for line in LONG_WORK.splitlines()) + "        launch(20)\n"
        "        sys.exit(0)\n"
        "    status = os.waitpid(pid, 0)[1]\n"
        "    assert status == 0, status\n",
        timeout=280,
    )
    assert result.stdout == result.stderr == ""


def test_a_fresh_process_exits_with_work_in_flight_on_two_devices(run_python):
    result = run_python(LONG_WORK + "y = launch(50); z = x.to('openreg:1') @ x.to('openreg:1')\n")
    assert result.stdout == result.stderr == ""


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "raise ValueError('the program failed')"])
def test_a_process_can_end_right_after_backward(run_python, end):
    result = run_python(
        "import sys, torch\n"
        "x = torch.rand(64, 64, device='openreg', requires_grad=True)\n"
        "y = torch.rand(64, 64, device='openreg:1', requires_grad=True)\n"
        f"((x @ x).to(y.device) @ y).sum().backward()\n{end}\n",
        check=False,
    )
    failed = end.startswith("raise")
    assert result.returncode == failed, result.stderr
    assert result.stdout == ""
    assert result.stderr.splitlines()[-1:] == (["ValueError: the program failed"] if failed else [])


def test_exit_waits_for_the_autograd_thread_that_still_runs_python(run_python):
    """The interpreter must not be gone when PyTorch's thread asks for it. Here the thread does so a thousand times
    after the program has begun to exit; after any backward it does so once, where it drops the task.
    """
    result = run_python(
        "import atexit, threading, time, torch\n"
        "running, exiting = threading.Event(), threading.Event()\n"
        "def go_on(gradient):\n"
        "    running.set()\n"
        "    exiting.wait()\n"
        "    for _ in range(1000): time.sleep(0)  # releases the interpreter, and asks for it again\n"
        "    print('done', flush=True)\n"
        "def fail(gradient):\n"
        "    running.wait()\n"
        "    raise ValueError\n"
        "x, y = torch.ones(3, requires_grad=True), torch.ones(3, device='openreg', requires_grad=True)\n"
        "x.register_hook(fail)\n"
        "y.register_hook(go_on)\n"
        "atexit.register(exiting.set)\n"
        "try: torch.autograd.backward([x.sum(), y.sum()])\n"
        "except ValueError: pass\n"
        "assert not exiting.is_set()\n"
    )
    assert result.stdout == "done\n"
    assert result.stderr == ""


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_a_forked_child_does_not_wait_for_the_autograd_threads_of_its_parent(run_python, device):
    """They exist after any backward, and PyTorch's engine would wait for them, as long as this variable says."""
    result = run_python(
        "import os, sys, torch\n"
        f"torch.ones(3, device='{device}', requires_grad=True).sum().backward()\n"
        "if os.fork() == 0: sys.exit(0)\n"
        "assert os.wait()[1] == 0\n",
        TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT="10000",
        PYTHONWARNINGS="ignore::DeprecationWarning",  # since Python 3.12: a fork of a process with several threads
    )
    assert result.stdout == result.stderr == ""


def test_exit_after_backward_on_the_cpu_does_not_initialise_the_device(run_python):
    """The object is destroyed after the device's own function at exit."""
    result = run_python(
        "import torch\n"
        "class Last:\n"
        "    def __del__(self, torch=torch): print(torch.openreg.is_initialized())\n"
        "last = Last()\n"
        "torch.ones(3, requires_grad=True).sum().backward()\n"
    )
    assert result.stdout == "False\n"
    assert result.stderr == ""


def test_a_daemon_thread_that_waits_does_not_spoil_the_exit(run_python):
    """The main thread ends once the other one runs commands: then it is in its wait."""
    result = run_python(
        LONG_WORK + "import threading\n"
        "launch(200)\n"
        "threading.Thread(target=torch.accelerator.synchronize, daemon=True).start()\n"
        "while torch.openreg.scheduler_stats()['commands_by_hosts'] == 0: pass\n"
    )
    assert result.stderr == ""


@pytest.fixture
def interrupted_program(tmp_path):
    """Runs a program, sends it SIGINT once it has printed a line, and returns what it prints after that."""

    # Where a shell has started the tests in the background, SIGINT is ignored, and children inherit that.
    heed = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"

    def run(program: str) -> str:
        with subprocess.Popen(
            [sys.executable, "-c", heed + program],
            env=child_environment([], {}),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                process.stdout.readline()
                process.send_signal(signal.SIGINT)
                output = process.stdout.read()
            except BaseException:
                process.kill()
                raise
        assert process.returncode == 0, output
        return output

    return run


@pytest.mark.needs_engines("a query would run the work that it asks about")
@pytest.mark.parametrize(
    "wait",
    [
        "torch.accelerator.synchronize()",
        pytest.param("torch.accelerator.current_stream().synchronize()", marks=pytest.mark.full),
        "event.synchronize()",
        "y.cpu()",
        pytest.param("y[0, 0].item()", marks=pytest.mark.full),
        pytest.param("torch.openreg.synchronize()", marks=pytest.mark.full),
    ],
)
def test_ctrl_c_ends_a_wait_and_the_device_stays_usable(interrupted_program, wait):
    """Some hundred commands are queued; the wait ends after the one that runs, the queue stays."""
    output = interrupted_program(
        LONG_WORK + "y = launch(300)\n"
        "event = torch.accelerator.current_stream().record_event()\n"
        "try:\n"
        "    print('waiting', flush=True)\n"
        f"    {wait}\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "assert not torch.accelerator.current_stream().query()\n"
        "with torch.openreg.Stream(): print(torch.arange(4, device='openreg').sum().item())\n"
    )
    assert output == "interrupted\n6\n"


@pytest.mark.needs_engines("a query would run the work that it asks about")
def test_ctrl_c_ends_the_wait_for_memory_that_work_still_uses(interrupted_program):
    output = interrupted_program(
        "import os\n"
        "os.environ['TORCH_OPENREG_MEMORY'] = '128MiB'\n" + LONG_WORK + "other = torch.openreg.Stream()\n"
        "held = torch.empty(80 << 20, dtype=torch.uint8, device='openreg')\n"
        "torch.accelerator.synchronize()\n"
        "with other: y = launch(300)\n"
        "held.record_stream(other)\n"
        "del held\n"
        "try:\n"
        "    print('waiting', flush=True)\n"
        "    torch.openreg.caching_allocator_alloc(80 << 20)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "assert not other.query()\n"
    )
    assert output == "interrupted\n"


def test_ctrl_c_while_the_queue_is_full_ends_the_launch(interrupted_program):
    output = interrupted_program(
        LONG_WORK + "try:\n"
        "    print('launching', flush=True)\n"
        "    launch(100000)\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    assert output == "interrupted\n"


def test_an_interrupted_queue_still_gives_the_right_result(interrupted_program):
    output = interrupted_program(
        "import torch\n"
        "x = torch.zeros(1 << 22, device='openreg')\n"
        "for _ in range(500): x += 1\n"
        "while True:\n"
        "    try: print('waiting', flush=True); torch.accelerator.synchronize(); break\n"
        "    except KeyboardInterrupt: pass\n"
        "print(x.min().item(), x.max().item())\n"
    )
    assert output.splitlines()[-1] == "500.0 500.0"
