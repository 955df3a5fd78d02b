"""What is started by torchrun: the examples, programs whose ranks die, and programs that want more devices."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from children import child_environment
from devices import DEVICE
from torch.distributed.run import determine_local_world_size
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EXAMPLES = Path(__file__).parents[3] / "examples"


def start(ranks: int, program: Path, *arguments: Any, restarts: int = 0, **variables: str) -> subprocess.Popen[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.Popen(
        [*torchrun, f"--nproc-per-node={ranks}", f"--max-restarts={restarts}", program, *map(str, arguments)],
        env=child_environment([], {"OMP_NUM_THREADS": "1", **variables}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(ranks: int, program: Path, *arguments: Any, **variables: str) -> tuple[int, str, str]:
    """The exit status, stdout and stderr of a program."""
    with start(ranks, program, *arguments, **variables) as process:
        stdout, stderr = process.communicate(timeout=240)
    return process.returncode, stdout, stderr


def report_of(ranks: int, program: Path, *arguments: Any) -> dict[str, Any]:
    """What an example prints in its last line."""
    status, stdout, stderr = run(ranks, program, *arguments)
    assert status == 0, stderr
    assert "100%" in stderr  # the progress bar
    return json.loads(stdout.splitlines()[-1])


@pytest.fixture
def train_digits(monkeypatch):
    pytest.importorskip("sklearn")
    pytest.importorskip("tqdm")
    monkeypatch.syspath_prepend(EXAMPLES)
    import train_digits

    return train_digits


def losses_of_one_process(train_digits: Any, epochs: int) -> list[float]:
    """What the digits are learned with, without ranks, on the CPU."""
    images, labels, _, _ = train_digits.load_data(seed=0)
    data = TensorDataset(images, labels)
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    model = train_digits.make_model(seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch, wanted in DataLoader(data, train_digits.BATCH_SIZE, sampler=sampler, drop_last=True):
            loss = functional.cross_entropy(model(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.any_device
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_ranks_learn_the_digits_as_one_process_does(train_digits, tmp_path, ranks):
    log = tmp_path / "losses"
    report = report_of(ranks, EXAMPLES / "train_ddp_digits.py", "--epochs", 2, "--loss-log", log)
    assert set(report) == {"accuracy", "seconds", "ranks", "device"}
    assert (report["ranks"], report["device"]) == (ranks, DEVICE)
    assert report["accuracy"] >= 0.95
    losses = [float(line) for line in log.read_text().splitlines()]
    # Later, rounding decides which of the activations that are nearly zero a ReLU lets through.
    assert losses[:20] == pytest.approx(losses_of_one_process(train_digits, epochs=1)[:20], abs=1e-3)
    assert losses[-1] < 0.2 * losses[0]


FSDP = ("--steps", 60, "--every", 10, "--checkpoints")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    pytest.importorskip("tqdm")
    return report_of(4, EXAMPLES / "train_fsdp.py", *FSDP, tmp_path_factory.mktemp("checkpoints"))


@pytest.mark.any_device
@pytest.mark.full
def test_a_model_in_parts_learns_what_it_does_in_one_piece(undisturbed):
    assert set(undisturbed) == {"loss", "resumed_from", "seconds", "ranks", "device"}
    assert (undisturbed["ranks"], undisturbed["device"], undisturbed["resumed_from"]) == (4, DEVICE, 0)
    assert undisturbed["loss"] < 3
    alone = report_of(1, EXAMPLES / "train_fsdp.py", "--steps", 60)
    assert undisturbed["loss"] == pytest.approx(alone["loss"], rel=1e-3)


def pid_of(agent: int, rank: int) -> int:
    """The process of a rank."""
    for child in map(int, Path(f"/proc/{agent}/task/{agent}/children").read_text().split()):
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return child
    raise LookupError(f"torchrun has no rank {rank}")


@pytest.mark.any_device
@pytest.mark.full
@pytest.mark.parametrize("rank", [0, 2])
def test_training_resumes_after_a_rank_was_killed(undisturbed, tmp_path, rank):
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # else it keeps the addresses of the processes that died
    with start(4, EXAMPLES / "train_fsdp.py", *FSDP, tmp_path, restarts=1, **variables) as process:
        shown = []
        for line in process.stderr:  # each state of the progress bar is a line
            shown.append(line)
            if "saved=20" in line:
                os.kill(pid_of(process.pid, rank), signal.SIGKILL)
                break
        stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, "".join(shown) + stderr
    report = json.loads(stdout.splitlines()[-1])
    assert 20 <= report["resumed_from"] < 60
    assert report["loss"] == pytest.approx(undisturbed["loss"], rel=1e-6)


STEPS = ("--steps", 12, "--every", 4, "--checkpoints")
NEVER = 10**9


def counted(stderr: str, fault: str) -> int:
    """How many allocations or collectives a rank has counted."""
    return int(re.search(rf"{fault}:{NEVER}: never fired; (\d+) counted", stderr)[1])


@pytest.fixture(scope="module")
def without_faults(tmp_path_factory):
    """The loss of an undisturbed run, and how many allocations and collectives each of its ranks has."""
    pytest.importorskip("tqdm")
    faults = f"oom@allocation:{NEVER}; lost@collective:{NEVER}"
    folder = tmp_path_factory.mktemp("checkpoints")
    status, stdout, stderr = run(2, EXAMPLES / "train_fsdp.py", *STEPS, folder, TORCH_OPENREG_FAULTS=faults)
    assert status == 0, stderr
    loss = json.loads(stdout.splitlines()[-1])["loss"]
    return loss, counted(stderr, "oom@allocation"), counted(stderr, "lost@collective")


def resumed(folder: Path, restarts: int, *faults: str) -> tuple[dict[str, Any], str]:
    """The report of a run with faults, and stderr."""
    variables = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "TORCH_OPENREG_FAULTS": "; ".join(faults)}
    with start(2, EXAMPLES / "train_fsdp.py", *STEPS, folder, restarts=restarts, **variables) as process:
        stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    return json.loads(stdout.splitlines()[-1]), stderr


@pytest.mark.full
def test_training_survives_a_lack_of_memory_and_the_loss_of_a_device(without_faults, tmp_path):
    loss, allocations, collectives = without_faults
    lack = f"oom@allocation:{allocations // 2},rank=1,restart=0"
    loss_of_device = f"lost@collective:{collectives * 4 // 10},rank=0,restart=1"
    report, stderr = resumed(tmp_path, 2, lack, loss_of_device)
    assert f"{lack}: fired 1 time" in stderr
    assert f"{loss_of_device}: fired 1 time" in stderr
    assert "torch.OutOfMemoryError" in stderr and "the device is lost" in stderr
    assert report["resumed_from"] == 8  # the first restart resumed from 4
    assert report["loss"] == loss


@pytest.mark.full
@pytest.mark.parametrize("fault", ["oom@allocation", "lost@collective"])
@pytest.mark.parametrize(("tenths", "rank"), [(1, 0), (5, 1), (8, 0), (10, 1)])
def test_training_survives_a_fault_at_any_time(without_faults, tmp_path, fault, tenths, rank):
    loss, allocations, collectives = without_faults
    count = allocations if fault == "oom@allocation" else collectives
    spec = f"{fault}:{count * tenths // 10},rank={rank},restart=0"
    report, stderr = resumed(tmp_path, 1, spec)
    assert f"{spec}: fired 1 time" in stderr
    assert report["loss"] == loss


def write(folder: Path, *lines: str) -> Path:
    """A program of these lines, in a function that records its errors."""
    program = folder / "program.py"
    program.write_text(
        "import os\nimport torch\nimport torch.distributed as dist\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n" + "".join(f"    {line}\n" for line in lines) + "main()\n"
    )
    return program


def root_cause(stderr: str) -> str:
    """What torchrun says of the rank that failed first."""
    return stderr[stderr.index("Root Cause") :]


@pytest.mark.full
def test_torchrun_names_the_error_of_the_rank_that_failed_first(tmp_path):
    program = write(
        tmp_path,
        "dist.init_process_group()",
        "x = torch.arange(4.0, device='openreg')",
        "if dist.get_rank() == 1:",
        "    x = x[torch.tensor([7], device='openreg')].expand(4)",
        "    torch.accelerator.synchronize()",
        "dist.all_reduce(x)",
        "print(x)",
    )
    status, _, stderr = run(2, program)
    assert status == 1
    assert "rank      : 1 (local_rank: 1)" in root_cause(stderr)
    assert "torch.AcceleratorError: openreg: aten::index.Tensor failed on openreg:0" in root_cause(stderr)


@pytest.mark.full
@pytest.mark.parametrize(
    "use",
    [
        "torch.accelerator.set_device_index(int(os.environ['LOCAL_RANK']))",
        "torch.zeros(1, device=torch.device('openreg', int(os.environ['LOCAL_RANK'])))",
        "dist.init_device_mesh('openreg', (2,))",
    ],
)
def test_the_error_of_a_missing_device_names_the_setting_of_their_number(tmp_path, use):
    status, _, stderr = run(2, write(tmp_path, use), TORCH_OPENREG_DEVICES="1")
    assert status == 1
    expected = (
        r"RuntimeError: openreg: The device index is out of range \(got 1, expected 0 to 0\); TORCH_OPENREG_DEVICES "
    )
    assert re.search(expected, root_cause(stderr))


def test_a_device_id_beyond_the_devices_is_refused_with_their_number():
    with pytest.raises(ValueError, match=r"device_id openreg:9 is out of range.*number of accelerators available: 2"):
        dist.init_process_group(device_id=9, store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()


def test_as_many_ranks_as_devices():
    assert [determine_local_world_size(each) for each in ("auto", DEVICE)] == [torch.accelerator.device_count()] * 2
    with pytest.raises(ValueError, match="Cuda is not available"):
        determine_local_world_size("gpu")
