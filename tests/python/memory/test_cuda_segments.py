"""CUDA's allocator rules: what the device reserves, and when it runs out of memory, is the same as on CUDA."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

MIB = 1 << 20

FOLDER = Path(__file__).parent
PROGRAMS = [30, pytest.param(200, marks=[pytest.mark.full, pytest.mark.timeout(600)])]
# PYTORCH_ALLOC_CONF, and the same for the model.
SETTINGS = {
    "default": ("", ""),
    "expandable": ("expandable_segments:True", "expandable=True"),
    "max_split": ("max_split_size_mb:24", "max_split=24 * MIB"),
    "non_split_rounding": (
        "max_split_size_mb:30,max_non_split_rounding_mb:24",
        "max_split=30 * MIB, max_non_split_rounding=24 * MIB",
    ),
    "expandable_max_split": ("expandable_segments:True,max_split_size_mb:24", "expandable=True, max_split=24 * MIB"),
    "collection": ("garbage_collection_threshold:0.6", "threshold=0.6"),
    "collection_max_split": (
        "garbage_collection_threshold:0.4,max_split_size_mb:24",
        "threshold=0.4, max_split=24 * MIB",
    ),
    "divisions": ("roundup_power2_divisions:4", "divisions=4"),
}


@pytest.mark.no_executor("nothing computes")
@pytest.mark.parametrize("programs", PROGRAMS)
@pytest.mark.parametrize("name", [*SETTINGS, "toggled"])
def test_random_programs_have_the_statistics_of_cuda_after_each_step(run_forked, name, programs):
    conf, settings = SETTINGS.get(name, ("", ""))
    seed = random.SystemRandom().randrange(1 << 20)
    result = run_forked(
        f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n"
        "from cuda_allocator_programs import MIB, Settings, run\n"
        f"total = run({seed}, {programs}, Settings({settings}), toggles={name == 'toggled'})\n"
        "assert total['retries'] > 0 and total['ooms'] > 0, total\n",
        timeout=programs * 2 + 60,
        TORCH_OPENREG_COMPUTE="0",
        PYTORCH_ALLOC_CONF=conf or None,
        TORCH_OPENREG_MEMORY="256MiB",
        TORCH_OPENREG_DEVICES="1",
    )
    assert not result.stderr, result.stderr


REPLAY = """
import torch
from cuda_allocator import MIB, CudaAllocator, Settings, replay
from cuda_allocator_programs import NAMES
from torch_openreg import _C

_C.use_cuda_segments(True)
torch.openreg.memory._record_memory_history(max_entries=1_000_000, context=None)
model = torch.nn.Sequential(torch.nn.Linear(700, 3000), torch.nn.GELU(), torch.nn.Linear(3000, 700)).to("openreg")
optimizer = torch.optim.AdamW(model.parameters())
for rows in (500, 900, 700):
    loss = model(torch.randn(rows, 700, device="openreg")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.openreg.empty_cache()
torch.openreg.synchronize()
(trace,) = torch.openreg.memory._snapshot()["device_traces"]
stats = torch.openreg.memory_stats()
cuda = replay(trace, CudaAllocator(2 << 30, Settings(expandable=EXPANDABLE)))
cuda.empty_cache()
for name in ("reserved_peak", "allocated_peak", "reserved", "allocated", "segments", "maps", "unmaps"):
    assert stats[NAMES[name]] == cuda.stats[name], (name, stats[NAMES[name]], cuda.stats[name])
"""


@pytest.mark.parametrize("expandable", [False, True])
def test_the_trace_of_a_training_replayed_by_cudas_rules_has_its_peaks(run_forked, expandable):
    run_forked(
        f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n" + REPLAY.replace("EXPANDABLE", str(expandable)),
        PYTORCH_ALLOC_CONF=f"expandable_segments:{expandable}",
        TORCH_OPENREG_MEMORY="2GiB",
        TORCH_OPENREG_DEVICES="1",
    )


def published_peaks():
    from torch import nn

    from torch_openreg import _C

    _C.use_cuda_segments(True)
    hidden = 1024

    class RMSNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden, device="openreg"))

        def forward(self, x):
            wide = x.to(torch.float32)
            return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def peak(used, _unused, rows, dtype):
        x = torch.randn(rows, hidden, device="openreg", dtype=dtype)
        dy = torch.randn_like(x)
        x.requires_grad_()
        peaks = []
        for _ in range(3):
            torch.openreg.reset_peak_memory_stats()
            used(x).backward(dy, retain_graph=True)
            peaks.append(torch.openreg.max_memory_allocated() / MIB)
        return peaks[-1]

    norms = [nn.LayerNorm(hidden, device="openreg") for _ in range(2)]
    print(peak(*norms, 4096, torch.float32))
    del norms
    print(peak(RMSNorm(), RMSNorm(), 2048, torch.bfloat16))


def test_peaks_are_those_that_liger_kernel_has_published_for_an_a100(run_alone):
    """The rows of plain torch, in MiB: layer normalisation and RMS normalisation of 1024 columns."""
    peaks = run_alone(published_peaks, TORCH_OPENREG_MEMORY="1GiB", TORCH_OPENREG_DEVICES="1")
    assert peaks.split() == ["80.0625", "80.01953125"]


def rules_cannot_change_with_memory():
    from torch_openreg import _C

    x = torch.ones(3, device="openreg")
    try:
        _C.use_cuda_segments(True)
    except RuntimeError as e:
        print(e)
    del x
    torch.openreg.empty_cache()
    _C.use_cuda_segments(True)
    x = torch.empty(11 * MIB, dtype=torch.uint8, device="openreg")
    assert torch.openreg.memory_allocated() == 12 * MIB + 0 * x.numel()


def test_the_rules_are_chosen_before_the_device_has_memory(run_alone):
    assert "while it has memory" in run_alone(rules_cannot_change_with_memory)


def an_idle_device_reserves():
    import warnings

    warnings.simplefilter("error")
    x = torch.empty(11 * MIB, dtype=torch.uint8, device="openreg")
    print(torch.openreg.memory_allocated() // MIB, torch.openreg.memory_reserved() // MIB)
    try:
        torch.empty(3 * MIB, dtype=torch.uint8, device="openreg")
    except torch.OutOfMemoryError as e:
        print(str(e).split(";")[0])
    del x


@pytest.mark.no_executor("nothing computes")
@pytest.mark.parametrize(("conf", "allocated", "reserved"), [(None, 12, 12), ("expandable_segments:True", 11, 20)])
def test_devices_that_do_not_compute_follow_cudas_rules(run_alone, conf, allocated, reserved):
    lines = run_alone(
        an_idle_device_reserves,
        TORCH_OPENREG_COMPUTE="0",
        PYTORCH_ALLOC_CONF=conf,
        TORCH_OPENREG_MEMORY="28MiB",
        TORCH_OPENREG_DEVICES="1",
    ).splitlines()
    assert lines[0] == f"{allocated} {reserved}"
    if conf is None:
        assert lines[1] == "openreg:0 is out of memory. Tried to allocate 20.00 MiB"
    else:
        assert len(lines) == 1, "the page has room"
