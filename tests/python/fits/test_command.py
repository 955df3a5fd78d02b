"""``python -m torch_openreg fits``: runs of whole programs."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fits_runs import SIDE, TRAIN, WEIGHT, fits

from torch_openreg.fits.report import KINDS, Ended

pytestmark = pytest.mark.no_executor("nothing computes")

BATCH = 4 * 32 * SIDE


def test_a_training_is_ended_after_its_steps_and_the_report_has_exact_sums(tmp_path):
    result = fits(tmp_path, TRAIN, "--profile", "h100,t4", "--steps", "2")
    assert result.status == 0, result.errors
    assert result.output.startswith("fits on t4, h100\n")
    (report,) = result.json["reports"]
    assert (report["ended"], report["steps"], report["rank"]) == (Ended.STEPS, 2, 0)
    (device,) = report["devices"]
    kinds = device["kinds"]
    for kind in ("parameters", "gradients", "optimizer state"):
        assert kinds[kind] == WEIGHT, kind
    assert kinds["workspaces"] == 2 * 32 << 20  # an H100's, of the main thread and of autograd's
    assert sum(kinds.values()) == device["held"] == device["allocated"]
    assert device["at"]["step"] == 2
    assert "openreg: step 1 of 2 after " in result.errors


@pytest.mark.full
def test_computing_changes_no_figure(tmp_path):
    # A device that computes has other rules by default, and does not have what only CUDA's kernels allocate.
    code = "from torch_openreg import _C\n_C.use_cuda_segments(True)\n_C.reproduce_cuda_allocations(False)\n" + TRAIN
    first, second = (fits(tmp_path, code, *options).json["reports"][0] for options in ([], ["--compute"]))
    assert (first["computed"], second["computed"]) == (False, True)
    for name in ("kinds", "modules", "lines", "allocated", "reserved", "allocations", "at"):
        assert first["devices"][0][name] == second["devices"][0][name], name


def test_reads_of_values_that_are_not_computed_are_reported_with_their_lines(tmp_path):
    code = TRAIN.replace("    optimizer.step()", "    print(float(model.weight.sum()))\n    optimizer.step()")
    result = fits(tmp_path, code, "--steps", "2")
    assert result.status == 0, result.errors
    (value,) = result.json["reports"][0]["values"]
    assert value["count"] == 2 and value["line"].startswith("train.py:9 in ")
    assert "values    not computed; the program read 2 that are unknown:" in result.output


@pytest.mark.full
def test_functions_at_exit_run_when_a_program_is_ended(tmp_path):
    code = "import atexit; atexit.register(print, 'at exit')\ntry:\n  " + "\n  ".join(TRAIN.strip().splitlines())
    code += "\nexcept Exception: print('caught')\nfinally: print('finally')\nprint('the end')"
    result = fits(tmp_path, code, "--steps", "1")
    assert result.status == 0, result.errors
    # The program's output does not mix with the report.
    printed = [line for line in result.errors.splitlines() if not line.startswith("openreg:")]
    assert printed == ["finally", "at exit"]


@pytest.mark.full
def test_a_program_that_catches_everything_is_ended_by_its_next_step(tmp_path):
    code = TRAIN.replace("    optimizer.step()", "    try: optimizer.step()\n    except BaseException: print('caught')")
    code += "\nprint('the end')"
    result = fits(tmp_path, code.replace("range(1000)", "range(3)"), "--steps", "1")
    assert result.status == 0
    assert result.json["reports"][0]["steps"] == 1
    assert "the end" in result.errors


def test_a_program_without_an_optimizer_runs_to_its_end(tmp_path):
    code = "import torch\nmodel = torch.nn.Linear(256, 256, device='openreg')\n"
    code += "with torch.no_grad(): model(torch.ones(8, 256).to('openreg'))"
    result = fits(tmp_path, code)
    assert result.status == 0, result.errors
    (report,) = result.json["reports"]
    assert (report["ended"], report["steps"]) == (Ended.PROGRAM, 0)
    assert "ran       to its end, 0 steps" in result.output


def test_what_does_not_fit_ends_with_status_1_and_the_figures_at_that_point(tmp_path):
    code = "import torch\nkept = [torch.empty(1 << 30, dtype=torch.uint8, device='openreg') for _ in range(30)]"
    result = fits(tmp_path, code, "--profile", "t4")
    assert result.status == 1
    # A T4 has 14.17 GiB for PyTorch.
    assert result.output.startswith("does not fit on t4: peak 15.00 of 14.17 GiB outside of modules (")
    assert "failed    an allocation of 1.00 GiB outside of modules" in result.output
    (device,) = result.json["reports"][0]["devices"]
    assert device["held"] == 14 << 30
    assert device["failures"][0]["requested"] == 1 << 30
    assert "OutOfMemoryError" in result.errors


def test_a_program_that_survives_lack_of_memory_fits(tmp_path):
    code = """
import torch
def take(size): return torch.empty(size, dtype=torch.uint8, device="openreg")
try: take(1 << 40)
except torch.OutOfMemoryError: take(1 << 20)
"""
    result = fits(tmp_path, code, "--profile", "t4")
    assert result.status == 0, result.errors
    assert result.json["reports"][0]["ended"] == Ended.PROGRAM


def test_an_error_of_the_program_passes_through(tmp_path):
    result = fits(tmp_path, "import torch\ntorch.ones(8, device='openreg')\nraise SystemExit(7)")
    assert result.status == 7
    result = fits(tmp_path, "import torch\ntorch.ones(8, device='openreg')\nraise KeyError('name')")
    assert result.status == 1
    assert "KeyError: 'name'" in result.errors
    assert result.json["reports"][0]["ended"] == Ended.ERROR


@pytest.mark.full
def test_profiles_between_are_decided_by_a_run_with_their_memory(tmp_path):
    # 15 GiB are held in all, but a third of it in the cache: 10 GiB fit on a T4 once the cache is released.
    code = """
import torch
def take(mib): return [torch.empty(mib << 20, dtype=torch.uint8, device="openreg") for _ in range(5)]
blocks = take(1024)
del blocks
kept = take(2048)
"""
    result = fits(tmp_path, code, "--profile", "h100,t4")
    assert result.status == 0, result.errors
    assert result.output.startswith("fits on t4, h100\n")


@pytest.mark.full
def test_several_optimizers_make_one_step(tmp_path):
    code = """
import torch
models = [torch.nn.Linear(64, 64, device="openreg") for _ in range(3)]
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
for step in range(10):
    for model, optimizer in list(zip(models, optimizers))[:2]:  # the third is not used
        model(torch.ones(8, 64, device="openreg")).sum().backward()
        optimizer.step()
        print("stepped")
"""
    result = fits(tmp_path, code, "--steps", "2")
    assert result.status == 0, result.errors
    assert result.json["reports"][0]["steps"] == 2
    assert result.errors.count("stepped") == 3  # the last one is ended before it prints


def test_ranks_report_and_the_summary_has_the_largest(tmp_path):
    code = """
import os, torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("occl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256, bias=False, device="openreg"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
extra = torch.empty((1 + rank) << 20, dtype=torch.uint8, device="openreg")
for _ in range(100):
    optimizer.zero_grad()
    model(torch.ones(8, 256, device="openreg")).sum().backward()
    optimizer.step()
"""
    (tmp_path / "ddp.py").write_text(code)
    command = [sys.executable, "-m", "torch_openreg", "fits", "--steps", "2", "--profile", "t4"]
    command += ["-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "ddp.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "ranks     2, which reserve " in done.stdout
    assert "below: rank 1" in done.stdout


@pytest.mark.full
def test_a_process_that_runs_out_of_memory_ends_those_that_wait_for_it(tmp_path):
    code = """
import os, time, torch
torch.ones(8, device="openreg")
if os.environ["RANK"] == "1":
    torch.empty(1 << 40, dtype=torch.uint8, device="openreg")
time.sleep(600)
"""
    (tmp_path / "ranks.py").write_text(
        "import os, subprocess, sys\n"
        "def start(rank): return subprocess.Popen([sys.executable, 'rank.py'], env={**os.environ, 'RANK': rank})\n"
        "ranks = [start('0'), start('1')]\n"
        "sys.exit(max(rank.wait() for rank in ranks))"
    )
    (tmp_path / "rank.py").write_text(code)
    command = [sys.executable, "-m", "torch_openreg", "fits", "--profile", "t4", "ranks.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("does not fit on t4: peak 1024.00 of 14.17 GiB outside of modules (")


@pytest.mark.full
def test_spawned_processes_are_measured(tmp_path):
    code = """
import torch
def work(index): torch.empty(8 << 20, dtype=torch.uint8, device="openreg")
if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=1)
    torch.multiprocessing.start_processes(work, nprocs=1, start_method="fork")
"""
    result = fits(tmp_path, code)
    assert result.status == 0, result.errors
    assert [report["devices"][0]["allocated"] for report in result.json["reports"]] == [8 << 20, 8 << 20]


@pytest.mark.full
def test_what_would_help_is_what_was_run(tmp_path):
    result = fits(tmp_path, TRAIN, "--profile", "t4", "--try=--batch 8", arguments=("--batch", "64"))
    assert result.status == 0, result.errors
    (one,) = result.json["tries"]
    assert one["arguments"] == ["--batch", "8"]
    assert "what would help\n  --batch 8: " in result.output


@pytest.mark.full
def test_the_best_and_the_worst_case_differ_by_what_the_device_has_yet_to_do(tmp_path):
    # A block that another stream uses is free when that stream has got so far: in the worst case, never.
    code = """
import torch
side = torch.Stream("openreg")
for _ in range(8):
    block = torch.empty(64 << 20, dtype=torch.uint8, device="openreg")
    with side:
        block.add_(1)
    block.record_stream(side)
    del block
"""
    result = fits(tmp_path, code, "--schedules", "--profile", "t4")
    assert result.status == 0, result.errors
    best, worst = result.json["schedules"]
    assert (best["name"], best["reserved"]) == ("best", 64 << 20)
    assert (worst["name"], worst["reserved"]) == ("worst", 512 << 20)
    assert "  best case, the device keeps up with the host: 64.00 MiB in tensors, 64.00 MiB reserved; " in result.output
    assert "  worst case, the host runs far ahead: 64.00 MiB in tensors, 512.00 MiB reserved; " in result.output


@pytest.mark.full
def test_a_report_says_where_compiled_programs_were_fused_as_for_the_cpu(tmp_path):
    code = TRAIN.replace("optimizer = ", "loss = torch.compile(lambda y: y.relu().sum())\noptimizer = ")
    code = code.replace("    model(", "    loss(model(").replace(").sum().backward()", ")).backward()")
    sentence = "torch.compile fused operators as for the CPU; on a GPU other buffers may be needed"
    compiled, eager = (fits(tmp_path, each, "--steps", "1") for each in (code, TRAIN))
    assert compiled.status == 0, compiled.errors
    assert compiled.json["reports"][0]["compiled"] > 0 and eager.json["reports"][0]["compiled"] == 0
    assert f"compiled  {sentence}\n" in compiled.output and sentence not in eager.output
    assert sentence in compiled.html and sentence not in eager.html


def test_the_json_has_the_documented_fields(tmp_path):
    data = fits(tmp_path, TRAIN, "--steps", "1", "--profile", "h100").json
    shape = {
        "version": int, "summary": str, "verdicts": list, "rank": int, "device": int, "reports": list, "tries": list,
        "schedules": list, "search": type(None),
    }  # fmt: skip
    assert {name: type(value) for name, value in data.items()} == shape
    assert data["version"] == 1
    (verdict,) = data["verdicts"]
    assert verdict["profile"] == "h100" and verdict["fits"] is True and verdict["usable"] > verdict["needed"] > 0
    (report,) = data["reports"]
    assert report.keys() == {
        "program", "ended", "steps", "seconds", "rank", "host", "devices", "computed", "values", "compiled", "unknown",
        "version",
    }  # fmt: skip
    (device,) = report["devices"]
    assert device.keys() == {
        "index", "total", "allocated", "reserved", "at", "held", "kinds", "modules", "lines", "curve", "allocations",
        "retries", "failures", "convolution", "communicators",
    }  # fmt: skip
    assert device["at"].keys() == {"step", "phase", "module", "line"}
    assert set(device["kinds"]) <= set(KINDS)
    assert len({len(curve) for curve in (*device["curve"]["kinds"].values(), device["curve"]["reserved"])}) == 1
    assert len(device["curve"]["steps"]) == report["steps"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no program was given; "),
        (["absent.py"], "the program does not exist (got 'absent.py', expected a Python file, -m or a command)"),
        (["absent-command"], "the program does not exist (got 'absent-command', "),
        (["--steps", "0", "x.py"], "--steps is out of range (got 0, expected a number from 1)"),
        (["--profile", "h10", "x.py"], "--profile is malformed (got 'h10', expected one of t4, "),
        (["--profile", "h100:0", "x.py"], "--profile is malformed (got 'h100:0', expected one of t4, "),
        (["--search", "batch=8..4", "x.py"], "--search is malformed (got 'batch=8..4', expected NAME=LOW..HIGH "),
        (
            ["--search", "batch=1..4", "--schedules", "--profile", "t4", "x.py"],
            "--schedules cannot be combined with --search: run it with the value that was found",
        ),
        (["--search", "batch=1..4", "x.py"], "--search needs one GPU to fit on (expected --profile NAME, "),
    ],
)
def test_wrong_use_is_one_sentence(capsys, arguments, message):
    from torch_openreg.fits import command, run

    assert command.main(arguments, "fits", run.device_settings) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"openreg: {message}")


def test_a_program_that_uses_no_device_has_nothing_to_report(tmp_path):
    result = fits(tmp_path, "import torch")
    assert result.status == 2
    assert "openreg: the program allocated no memory on the device, so there is nothing to report" in result.errors
