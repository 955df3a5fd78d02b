"""The same operators from many threads, on several streams of two devices, compared with the CPU."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from devices import DEVICE
from torch.testing import assert_close

THREADS = 8
STREAMS_PER_DEVICE = 2

WORK = {
    "structured": lambda x: (x @ x.t()).softmax(0).sum(1),
    "boxed": lambda x: torch.where(x > 0, x, -x).roll(1, 0).abs(),
    "several results": lambda x: torch.kthvalue(x, 3, dim=1).values,
    "in place": lambda x: x.clone().masked_fill_(x > 0.5, 0.0).index_add_(0, torch.tensor([0], device=x.device), x[:1]),
    "convolution": lambda x: F.conv1d(x.unsqueeze(0), x[:3, :5].unsqueeze(1).expand(3, x.shape[0], 5)),
    "normalisation": lambda x: F.layer_norm(x, x.shape[1:]),
    "depending on elements": lambda x: x[x > 0].sort().values,
    "backward": lambda x: torch.autograd.grad((y := x.detach().requires_grad_()).sin().cumsum(0).square().sum(), y)[0],
}


def use(thread: int, round_: int, streams: list[torch.Stream], start: threading.Barrier) -> None:
    generator = torch.Generator().manual_seed(1000 * round_ + thread)
    inputs = torch.randn(6 + thread % 3, 9, generator=generator)
    stream = streams[thread % len(streams)]
    start.wait()
    with stream:
        x = inputs.to(stream.device)
        results = {name: work(x) for name, work in WORK.items()}
        got = {name: result.cpu() for name, result in results.items()}
    for name, work in WORK.items():
        assert_close(got[name], work(inputs), rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.any_device
def test_eight_threads_on_four_streams_of_two_devices_two_hundred_times():
    streams = [torch.Stream(device=f"{DEVICE}:{d}") for d in range(2) for _ in range(STREAMS_PER_DEVICE)]
    with ThreadPoolExecutor(THREADS) as pool:
        for round_ in range(200):
            start = threading.Barrier(THREADS)
            for done in [pool.submit(use, t, round_, streams, start) for t in range(THREADS)]:
                done.result()
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)


def test_an_engine_computes_with_one_thread_whatever_it_has_run(run_python):
    """The threads of a team have the name of the engine that made it. `randn` is a kernel of ours, `+` is torch's."""
    run_python(
        "import time, torch\n"
        "from pathlib import Path\n"
        "torch.set_num_threads(4)\n"
        "x = torch.randn(1 << 20, device='openreg')\n"
        "y = x + x\n"
        "z = torch.ones(1 << 22, pin_memory=True).to('openreg', torch.double, non_blocking=True)\n"  # the copy engine's
        "while not torch.openreg.current_stream().query(): time.sleep(0.001)\n"  # the host does not help
        "names = [(task / 'comm').read_text().strip() for task in Path('/proc/self/task').iterdir()]\n"
        "assert torch.openreg.scheduler_stats()['commands_by_engines'] > 0\n"
        "assert names.count('openreg-engine') == names.count('openreg-copies') == 1, names\n"
        "assert torch.openreg.scheduler_stats()['engines'] == 2\n",
        TORCH_OPENREG_ENGINES="1",
    )


@pytest.mark.no_executor("those that compute are then the executor's")
def test_a_loader_that_pins_memory_takes_no_threads_from_the_program(run_python):
    """Its thread calls torch.set_num_threads(1), which later threads take over, autograd's among them."""
    run_python(
        "import os, time, torch\n"
        "from pathlib import Path\n"
        "from torch.utils.data import DataLoader\n"
        "threads = max(2, len(os.sched_getaffinity(0)))\n"
        "torch.set_num_threads(threads)\n"
        "for _ in DataLoader(torch.ones(8, 2), pin_memory=True, num_workers=1): pass\n"
        "w = torch.ones(1536, 1536, device='openreg', requires_grad=True)\n"
        "total = (w @ w).sum()\n"
        "total.backward(retain_graph=True)\n"
        "torch.accelerator.synchronize()\n"
        "total.backward()\n"
        "most = 0\n"
        "while not torch.openreg.current_stream().query():\n"  # the host does not help
        "    names = []\n"
        "    for task in Path('/proc/self/task').iterdir():\n"
        "        try: names.append((task / 'comm').read_text().strip())\n"
        "        except OSError: pass\n"  # it has ended
        "    most = max(most, names.count('openreg-engine'))\n"
        "print(repr(w[0]))\n"
        "assert torch.get_num_threads() == threads\n"
        "kept = 1 if threads >= 4 else 0\n"  # a core for the host
        "assert most >= threads - kept or len(os.sched_getaffinity(0)) == 1, most\n",  # the engine and its team
        TORCH_OPENREG_ENGINES="1",
    )


def test_autograds_thread_may_have_another_number_of_threads_than_the_engine(run_python):
    """It keeps the number that it has met first, and oneDNN chooses by it what it allocates for a convolution."""
    run_python(
        "import torch\n"
        "torch.set_num_threads(1)\n"
        "layer = torch.nn.Conv2d(3, 4, 1).to('openreg')\n"
        "layer(torch.ones(2, 3, 4, 4, device='openreg')).sum().backward()\n"
        "torch.set_num_threads(2)\n"
        "layer = torch.nn.Conv2d(64, 256, 1, bias=False)\n"
        "images = torch.randn(4, 64, 28, 28)\n"
        "gradients = []\n"
        "for device in ('cpu', 'openreg'):\n"
        "    x = images.to(device).detach().requires_grad_()\n"
        "    layer = layer.to(device)\n"
        "    layer.zero_grad()\n"
        "    layer(x).square().sum().backward()\n"
        "    gradients.append((x.grad.cpu(), layer.weight.grad.clone().cpu()))\n"
        "torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-2)\n"
    )


THREADS_OF_A_TRAINING_STEP = """
from pathlib import Path
import torch

model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3), torch.nn.BatchNorm2d(16)).to("openreg")
x = torch.randn(16, 8, 32, 32).to("openreg")
for _ in range(3):
    model(x).square().mean().backward()
torch.accelerator.synchronize()
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
of_autograd = [name for name in names if name.startswith("pt_autograd")]
assert of_autograd and len(of_autograd) == len(set(of_autograd)), names
"""


def test_autograds_thread_keeps_no_team(run_python):
    # A second OpenMP team in the process makes each parallel region of both cost a wake from sleep. Threads of a team
    # have the name of the one that made it.
    run_python(THREADS_OF_A_TRAINING_STEP, OMP_NUM_THREADS="2")
