"""Programs of several processes, and what holds for a whole process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from child_processes import run_python

TRAINING = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
assert dist.get_backend() == "nccl", dist.get_backend()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).cuda()
model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
model = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
for step in range(3):
    with torch.autocast("cuda"):
        loss = model(torch.randn(4, 8, device="cuda")).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
total = torch.tensor([rank + 1.0], device="cuda")
dist.all_reduce(total)
assert total.item() == 3
objects = [None, None]
dist.all_gather_object(objects, rank)
assert objects == [0, 1]
weight = model.module[0].weight.detach().clone()
dist.broadcast(weight, 0)
assert torch.equal(weight, model.module[0].weight)
dist.barrier()
dist.destroy_process_group()
print("done", rank)
"""

SHARDED = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh("cuda", (2,))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2)).cuda()
for layer in model:
    fully_shard(layer, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    model(torch.randn(4, 8, device="cuda")).float().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
print("done")
"""

SHARING = """
import torch, torch.multiprocessing as mp

def child(queue, back):
    x = queue.get()
    x += 1
    torch.cuda.synchronize()
    back.put(x.sum().item())

if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(queue, back))
    process.start()
    x = torch.ones(4, device="cuda")
    queue.put(x)
    assert back.get() == 8
    process.join()
    assert x.tolist() == [2] * 4
    print("done")
"""

SANITIZED = """
import torch, torch.cuda._sanitizer as sanitizer
x = torch.ones(1 << 16, device="cuda")
with torch.cuda.stream(torch.cuda.Stream()):
    try:
        x.add_(1)
    except sanitizer.CUDASanitizerErrors as error:
        print("found")
"""


SETTINGS = """
import torch
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
torch.use_deterministic_algorithms(True, warn_only=True)
torch.use_deterministic_algorithms(False)
torch.set_float32_matmul_precision("high")
torch.set_float32_matmul_precision("highest")
print("done")
"""


def run(tmp_path: Path, source: str, *launcher: str, **variables: str) -> str:
    program = tmp_path / "program.py"
    program.write_text(source)
    result = run_python(*launcher, program, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout


TWO_RANKS = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


@pytest.mark.parametrize("source", [TRAINING, SHARDED], ids=["DDP", "FSDP2"])
def test_two_ranks_train_by_nccl(source: str, tmp_path: Path) -> None:
    assert run(tmp_path, source, *TWO_RANKS).count("done") == 2


def test_tensors_are_shared_between_processes(tmp_path: Path) -> None:
    assert "done" in run(tmp_path, SHARING)


def test_the_sanitizer_of_pytorch_finds_a_race(tmp_path: Path) -> None:
    assert "found" in run(tmp_path, SANITIZED, TORCH_CUDA_SANITIZER="1")


def test_settings_of_backends_are_there(tmp_path: Path) -> None:
    # In a process of its own: PyTorch refuses them where a program, such as its database of operators, has used others.
    assert "done" in run(tmp_path, SETTINGS)


def test_races_are_found(tmp_path: Path) -> None:
    source = "import torch\nx = torch.ones(1 << 16, device='cuda')\nwith torch.cuda.stream(torch.cuda.Stream()):\n"
    source += "    y = x + 1\ntorch.cuda.synchronize()\n"
    program = tmp_path / "program.py"
    program.write_text(source)
    result = run_python(program, TORCH_OPENREG_DETECT_RACES="1")
    assert result.returncode != 0 and "program.py" in result.stderr, result.stderr


def test_nothing_happens_unless_it_is_asked_for() -> None:
    source = "import sys, torch; print(torch.cuda.is_available(), 'openreg_cuda.device' in sys.modules)"
    result = run_python("-c", source, OPENREG_CUDA=None)
    assert result.stdout.split() == ["False", "False"] and not result.stderr


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("a100:1", ("NVIDIA A100-SXM4-80GB", "(8, 0)", "1")),
        ("T4", ("Tesla T4", "(7, 5)", "2")),
        ("1", ("openreg (CUDA emulated on the CPU)", "(6, 0)", "2")),
    ],
)
def test_a_profile_is_chosen(request_: str, expected: tuple[str, ...]) -> None:
    source = (
        "import torch; c = torch.cuda; print(c.get_device_name(), c.get_device_capability(), c.device_count(), sep='|')"
    )
    result = run_python("-c", source, OPENREG_CUDA=request_)
    assert tuple(result.stdout.strip().split("|")) == expected, result.stderr


@pytest.mark.parametrize("request_", ["a200", "a100:0", "a100:x", "2"])
def test_a_malformed_request_is_reported(request_: str) -> None:
    result = run_python("-c", "import torch", OPENREG_CUDA=request_)
    assert result.returncode != 0 and f"OPENREG_CUDA is malformed (got '{request_}'" in result.stderr


@pytest.mark.parametrize(
    ("visible", "count"), [("0", 1), ("1,0", 2), ("", 0), ("-1", 0), ("0,7,1", 1), ("0,0", 0), ("1", 1)]
)
def test_visible_devices_are_counted(visible: str, count: int) -> None:
    source = "import torch; print(torch.cuda.device_count(), torch.cuda.is_available())"
    result = run_python("-c", source, CUDA_VISIBLE_DEVICES=visible)
    assert result.stdout.split() == [str(count), str(count > 0)], result.stderr
    if count == 0:
        for call in ("torch.ones(1, device='cuda')", "torch.cuda.current_device()", "torch.cuda.get_device_name()"):
            result = run_python("-c", f"import torch; {call}", CUDA_VISIBLE_DEVICES=visible)
            assert "RuntimeError: No CUDA GPUs are available" in result.stderr


def test_children_have_the_visible_devices() -> None:
    child = "import torch; print(torch.cuda.device_count())"
    source = f"import subprocess, sys; {child}; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    result = run_python("-c", source, CUDA_VISIBLE_DEVICES="1,0", OPENREG_CUDA="a100:3")
    assert sorted(result.stdout.split()) == ["2", "2"], result.stderr
    result = run_python("-c", source, CUDA_VISIBLE_DEVICES="1", TORCH_OPENREG_DEVICES="2")
    assert sorted(result.stdout.split()) == ["1", "1"], result.stderr


CONTEXTS = """
import torch
def contexts(): return [torch._C._cuda_hasPrimaryContext(index) for index in range(3)]
print(contexts())
tensor = torch.ones(1, device="cuda:1")
repr(tensor), torch.ones(1).pin_memory().is_pinned()
print(contexts())
torch.cuda.set_device(2)
print(contexts())
"""


def test_a_device_has_a_context_once_it_was_set_or_had_memory() -> None:
    result = run_python("-c", CONTEXTS, OPENREG_CUDA="1:3")
    assert result.stdout.splitlines() == ["[False, False, False]", "[False, True, False]", "[False, True, True]"]


def test_errors_of_the_runtime_have_their_names() -> None:
    torch.cuda.check_error(0)
    with pytest.raises(torch.cuda.CudaError, match="out of memory"):
        torch.cuda.check_error(2)


def test_the_command_runs_files_modules_and_commands(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys, torch; print(torch.cuda.is_available(), *sys.argv[1:])")
    for command in ([str(program)], ["-m", "program"], [sys.executable, str(program)]):
        result = run_python("-m", "openreg_cuda", *command, "--device=cuda", cwd=tmp_path, OPENREG_CUDA=None)
        assert result.stdout.split() == ["True", "--device=cuda"], result.stderr
