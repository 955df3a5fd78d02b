"""Installed but unused, the device is invisible. Each test has processes of its own."""

from __future__ import annotations

import json

import pytest

# A program that knows of no accelerator: workers, pinned memory, a fork, seeds, a file.
CPU_PROGRAM = """
import io, os, torch
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    torch.manual_seed(7)
    data = TensorDataset(torch.randn(64, 3), torch.arange(64))
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=2, pin_memory=True)
    for images, labels in loader:
        print(images.device, labels.tolist(), images.sum().item())
    pid = os.fork()
    if pid == 0:
        torch.manual_seed(8)
        os._exit(int(torch.randn(4).add(1).sum().item()) & 1)
    print(os.waitpid(pid, 0)[1])
    model = torch.nn.Linear(3, 3)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    model.load_state_dict(torch.load(file))
    print(model.weight.tolist(), torch.initial_seed())
"""

STATE = """
import json, os, sys, time
start = time.perf_counter()
import torch
seconds = time.perf_counter() - start
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "threads": int(status["Threads"]),
    "virtual": int(status["VmSize"].split()[0]) << 10,
    "seconds": seconds,
    "initialized": hasattr(torch, "openreg") and torch.openreg.is_initialized(),
}))
"""

# What autoload costs is what `import torch` does last: looking extensions up, loading this one.
AUTOLOAD_SECONDS = """
import time, torch
start = time.process_time()
torch._import_device_backends()
print(time.process_time() - start)
assert torch.openreg.device_count() == 2
"""


def test_a_cpu_program_behaves_as_without_it(run_python):
    # Pinning uses the device, which has threads, as on CUDA; and since Python 3.12 a fork warns of threads.
    with_it = run_python(CPU_PROGRAM, PYTHONWARNINGS="ignore:This process:DeprecationWarning")
    without = run_python(CPU_PROGRAM, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert with_it.stdout == without.stdout
    assert with_it.stderr == ""


def test_import_starts_no_thread_and_reserves_no_memory(run_python):
    with_it = json.loads(run_python(STATE).stdout)
    without = json.loads(run_python(STATE, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout)
    assert not with_it["initialized"]
    assert with_it["threads"] == without["threads"]
    assert with_it["virtual"] - without["virtual"] < 256 << 20  # the library itself; a window is many GiB


@pytest.mark.alone("it measures how long an import takes")
def test_autoload_adds_at_most_50_ms_to_import_torch(run_python):
    """Of processor time: on a busy machine, others take the rest."""
    seconds = [float(run_python(AUTOLOAD_SECONDS, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout) for _ in range(5)]
    assert min(seconds) < 0.050


def test_questions_and_seeds_do_not_use_the_device(run_python):
    run_python(
        "import torch\n"
        "torch.manual_seed(3)\n"
        "torch.accelerator.is_available(), torch.accelerator.device_count(), torch.accelerator.current_accelerator()\n"
        "torch.openreg.is_available(), torch.openreg.get_rng_state_all(), torch.openreg.memory_allocated(0)\n"
        "with torch.random.fork_rng(devices=[0], device_type='openreg'): torch.openreg.manual_seed(4)\n"
        "assert torch.openreg.initial_seed() == 3\n"
        "torch.nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()\n"
        "assert not torch.openreg.is_initialized() and not torch.openreg._initialized\n"
    )
