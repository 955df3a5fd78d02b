"""Programs with ``with torch.openreg.fits("h100") as report``. Each function runs in a process of its own."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path

import pytest
import torch
from devices import DEVICE

MODULE = torch.get_device_module(DEVICE)
PACKAGE = MODULE.__name__.rpartition(".")[0] if DEVICE == "openreg" else "openreg_cuda.device"
profiles = importlib.import_module(f"{PACKAGE}.fits.profiles")
from_json = importlib.import_module(f"{PACKAGE}.fits.report").from_json
GIB = 1 << 30


TINY = "tiny"


def define_tiny():
    """A GPU with 64 MiB for PyTorch."""
    profiles.PROFILES[TINY] = profiles.Profile(96, 32)


def a_report_says_whether_the_work_fits():
    with MODULE.fits("h100") as report:
        torch.empty(16 << 20, dtype=torch.uint8, device=DEVICE)
    assert report.fits
    assert str(report.verdict) == "fits on h100: peak 0.02 of 78.53 GiB"
    assert str(report).startswith("fits on h100\n")
    assert report.device.kinds == {"inputs and other data": 16 << 20}


def what_does_not_fit_runs_out_of_memory_as_there():
    with pytest.raises(torch.OutOfMemoryError), MODULE.fits(TINY) as report:
        kept = [torch.empty(16 << 20, dtype=torch.uint8, device=DEVICE) for _ in range(9)]
        del kept
    assert not report.fits
    failure = report.report.out_of_memory
    assert (failure.requested, failure.allocated) == (16 << 20, 64 << 20)
    assert report.device.held == 64 << 20
    assert "context_programs.py" in failure.when.line
    assert str(report).startswith("does not fit on tiny: peak 0.08 of 0.06 GiB")
    # The limit is gone.
    torch.empty(128 << 20, dtype=torch.uint8, device=DEVICE)


def memory_that_runs_out_and_is_then_found_is_no_failure():
    with MODULE.fits(TINY) as report:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(128 << 20, dtype=torch.uint8, device=DEVICE)
        torch.empty(32 << 20, dtype=torch.uint8, device=DEVICE)
    assert report.fits
    assert len(report.device.failures) == 1
    assert report.device.held == 32 << 20


def an_error_of_the_work_is_raised_and_the_report_made():
    with pytest.raises(KeyError), MODULE.fits("h100") as report:
        torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)
        raise KeyError
    assert report.report.ended == "error"


def several_devices_are_measured():
    with MODULE.fits("h100") as report:
        torch.empty(1 << 20, dtype=torch.uint8, device=f"{DEVICE}:0")
        torch.empty(4 << 20, dtype=torch.uint8, device=f"{DEVICE}:1")
    assert [device.index for device in report.report.devices] == [0, 1]
    assert report.device.index == 1


def the_buffers_of_nccl_are_estimated():
    import torch.distributed as dist

    x = torch.ones(8, device=DEVICE)
    with MODULE.fake_world(8), MODULE.fits("h100") as report:
        dist.init_process_group()
        dist.all_reduce(x)
        pair = dist.new_group([0, 1])
        dist.send(x, 1, group=pair)
        dist.new_group([0, 2])  # which does nothing
        dist.destroy_process_group()
    found = [(each.ranks, each.collectives, each.peers) for each in report.device.communicators]
    assert sorted(found) == [(2, False, 1), (8, True, 0)]
    assert report.verdict.nccl == (688 + 288 + 480) << 20
    assert report.verdict.usable == profiles.PROFILES["h100"].usable - report.verdict.nccl
    assert "NCCL's buffers about 1.42 GiB" in str(report)
    with MODULE.fits("h100") as report:
        torch.ones(8, device=DEVICE)
    assert report.device.communicators == [] and "NCCL" not in str(report)


def reports_are_written_to_files():
    folder = Path(tempfile.mkdtemp(dir="."))
    with MODULE.fits("h100") as report:
        torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)
    report.write_json(folder / "report.json")
    report.write_html(folder / "report.html")
    assert from_json(json.loads((folder / "report.json").read_text())) == report.report
    assert "h100" in (folder / "report.html").read_text()


def wrong_use_is_an_error():
    with (
        pytest.raises(ValueError, match="unknown profile \\(got 'h10', expected one of tiny, t4, "),
        MODULE.fits("h10"),
    ):
        pass
    with MODULE.fits("h100") as report:
        with pytest.raises(RuntimeError, match="complete when its with block has ended"):
            _ = report.fits
        with pytest.raises(RuntimeError, match="cannot be nested"), MODULE.fits("h100"):
            pass
    with pytest.raises(RuntimeError, match="allocated no memory"):
        _ = report.fits


def the_history_of_memory_stays_off_meanwhile():
    with MODULE.fits("h100"):
        with pytest.warns(UserWarning, match="does nothing while fits records"):
            MODULE.memory._record_memory_history()
        assert MODULE.memory._snapshot()["device_traces"] == [[]] * torch.accelerator.device_count()
    torch.empty(8, device=DEVICE)
    assert not any(MODULE.memory._snapshot()["device_traces"])


def modules_have_no_hooks_afterwards():
    from torch.nn.modules import module

    with MODULE.fits("h100"):
        assert module._global_forward_pre_hooks
    assert not module._global_forward_pre_hooks
    assert not module._global_forward_hooks
