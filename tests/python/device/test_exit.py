"""While Python code can run at exit, the device works: whenever the code was registered, and whoever calls it.

Each program prints what it computes when the process ends; the device must print the same as the CPU.
"""

from __future__ import annotations

import re
import textwrap

import pytest
from devices import DEVICE
from slices import one_in

# What runs at exit. `use` computes on the device and prints.
USE = """
import io
def use(label="used", save=io.BytesIO):
    torch.save(x, save())
    print(label, (x + 1).sum().item(), flush=True)
"""
BEGIN = """
import torch
x = torch.ones(4, device="{device}", requires_grad=True)
"""

PROGRAMS = {
    "atexit, before torch": "import atexit\natexit.register(use)\n" + BEGIN,
    "atexit, after torch": BEGIN + "import atexit\natexit.register(use)\n",
    "atexit, before and after": "import atexit\natexit.register(use, 'last')\n"
    + BEGIN
    + "atexit.register(use, 'first')",
    "the first use": "import atexit\natexit.register(lambda: print(torch.arange(4, device='{device}').sum().item()))\n"
    "import torch\n",
    "backward": "import atexit\n"
    "def train():\n"
    "    for _ in range(20): (x * x).sum().backward()\n"
    "    print(x.grad.tolist(), flush=True)\n"
    "atexit.register(train)\n" + BEGIN,
    "a function that fails": "import atexit\natexit.register(use)\natexit.register(lambda: 1 / 0)\n" + BEGIN,
    "weakref.finalize": "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, use)\n" + BEGIN,
    "threading's own": "import threading\nthreading._register_atexit(use)\n" + BEGIN,
    "multiprocessing's finalizer": "from multiprocessing.util import Finalize\n"
    "Finalize(None, use, exitpriority=1)\n" + BEGIN,
    "a thread that goes on": "import threading\n" + BEGIN + "def work():\n"
    "    threading.main_thread().join()\n"
    "    use()\n"
    "threading.Thread(target=work).start()\n",
    "sys.exit in a thread": "import atexit, sys, threading\natexit.register(use)\n" + BEGIN + "def work():\n"
    "    use('thread')\n"
    "    sys.exit(3)\n"
    "threading.Thread(target=work).start()\n",
    "a thread that an earlier function waits for": "import atexit, queue, threading\n"
    "jobs = queue.Queue()\n"
    "atexit.register(jobs.join)\n"
    "atexit.register(jobs.put, 'job')\n" + BEGIN + "def work():\n"
    "    while True:\n"
    "        use(jobs.get())\n"
    "        jobs.task_done()\n"
    "threading.Thread(target=work, daemon=True).start()\n",
    "an object of the module": BEGIN + "class Saver:\n"
    "    def __del__(self, torch=torch, x=x): print((x * 2).sum().item(), flush=True)\n"
    "saver = Saver()\n",
    "an object of another module": BEGIN + "import sys, types\n"
    "class Saver:\n"
    "    def __del__(self, torch=torch, x=x): print((x * 2).sum().item(), flush=True)\n"
    "sys.modules['other'] = types.ModuleType('other')\n"
    "sys.modules['other'].saver = Saver()\n",
    "a cycle": BEGIN + "class Saver:\n"
    "    def __init__(self): self.me = self\n"
    "    def __del__(self, use=use): use()\n"
    "Saver()\n",
    "sys.exit": "import atexit, sys\natexit.register(use)\n" + BEGIN + "sys.exit(5)\n",
    "an exception": "import atexit\natexit.register(use)\n" + BEGIN + "raise ValueError('the program failed')\n",
    "the functions called by the program": "import atexit, threading\n" + BEGIN + "atexit._run_exitfuncs()\n"
    "use()\n"
    "thread = threading.Thread(target=use)\n"
    "thread.start(); thread.join()\n",
}


@pytest.mark.parametrize("name", [one_in(5, name, name) for name in PROGRAMS])
def test_code_that_runs_at_exit_uses_the_device_as_it_uses_the_cpu(run_python, name):
    def end(device):
        program = USE + PROGRAMS[name].format(device=device)
        result = run_python(program, check=False)
        return result.returncode, result.stdout, re.sub("0x[0-9a-f]+", "0x", result.stderr)

    status, printed, errors = end(DEVICE)
    assert printed
    assert (status, printed, errors) == end("cpu")


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_a_child_of_multiprocessing_uses_the_device_when_it_ends(run_python, tmp_path, method):
    (tmp_path / "child.py").write_text(
        "import atexit\n"
        "from multiprocessing.util import Finalize\n"
        "def use(label): print(label, (x + 1).sum().item(), flush=True)\n"
        "def run():\n"
        "    global torch, x\n"
        "    atexit.register(use, 'atexit')\n"
        "    Finalize(None, use, args=('finalizer',), exitpriority=1)\n"
        "    import torch\n"
        f"    x = torch.ones(4, device='{DEVICE}')\n"
    )
    (tmp_path / "program.py").write_text(
        "import multiprocessing, child\n"
        "if __name__ == '__main__':\n"
        f"    process = multiprocessing.get_context('{method}').Process(target=child.run)\n"
        "    process.start(); process.join()\n"
        "    assert process.exitcode == 0\n"
    )
    result = run_python("import runpy; runpy.run_path('program.py', run_name='__main__')", path=[tmp_path])
    assert "finalizer 8.0\n" in result.stdout
    assert result.stderr == ""


def test_a_test_run_ends_after_what_was_registered_before_it(run_python, tmp_path):
    """Under pytest, which imports the program's modules, and whose own functions at exit were registered before."""
    (tmp_path / "test_it.py").write_text(
        "import atexit\n"
        "atexit.register(lambda: print('saved', (x + 1).sum().item(), flush=True))\n"
        "import torch\n"
        f"x = torch.ones(4, device='{DEVICE}')\n"
        "def test_it(): assert x.sum().item() == 4\n"
    )
    result = run_python(
        "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', 'test_it.py', '-c', '/dev/null']))",
        path=[tmp_path],
    )
    assert result.stdout.endswith("saved 8.0\n")


LATE_FAILURE = textwrap.dedent(
    f"""
    def fail():
        torch.ones(3, device="{DEVICE}")[torch.tensor([7], device="{DEVICE}")]
    """
)


@pytest.mark.parametrize(
    "when",
    [
        "import torch\nfail()\n",
        "import atexit\natexit.register(fail)\nimport torch\n",
        "import torch\nimport atexit\natexit.register(fail)\n",
        f"import torch\nx, i = torch.ones(3, device='{DEVICE}'), torch.tensor([7], device='{DEVICE}')\n"
        "class A:\n    def __del__(self, x=x, i=i): x[i]\na = A()\n",
    ],
    ids=["at the end", "before torch", "after torch", "at the end of the module"],
)
def test_a_failure_that_no_call_has_raised_is_printed_once(run_python, when):
    result = run_python(LATE_FAILURE + when)
    assert result.stderr.count("index 7 is out of bounds") == 1, result.stderr


def test_other_threads_are_kept_off_the_device_when_python_ends(run_python):
    """A thread that trains on must not end the process: it gets an error, whose traceback may end with Python."""
    result = run_python(
        "import threading, torch\n"
        "running = threading.Event()\n"
        f"model = torch.nn.Linear(64, 64).to('{DEVICE}')\n"
        "def train():\n"
        "    while True:\n"
        f"        model(torch.ones(32, 64, device='{DEVICE}')).sum().backward()\n"
        "        running.set()\n"
        "threading.Thread(target=train, daemon=True).start()\n"
        "running.wait()\n"
    )
    assert "terminate" not in result.stderr, result.stderr
