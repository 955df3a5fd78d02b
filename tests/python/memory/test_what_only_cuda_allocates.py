"""Without computing, operators allocate what CUDA's kernels do beside their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from allocating_operators import CASES
from devices import DEVICE, OPENREG

pytestmark = [pytest.mark.any_device, pytest.mark.no_executor("nothing computes")]

FOLDER = str(Path(__file__).parent)
MIB = 1 << 20
WORKSPACE = 8320 << 10  # below Hopper

PROGRAM = """
import json, sys
sys.path.insert(0, FOLDER)
import torch
M = getattr(torch, DEVICE)
"""


@pytest.fixture
def run(run_python):
    """Runs a program without computing on an A100, and returns what it prints as JSON."""

    def program(code: str, **variables: str) -> Any:
        prologue = PROGRAM.replace("FOLDER", repr(FOLDER)).replace("DEVICE", repr(DEVICE))
        gpu = {"OPENREG_CUDA": "a100"} if DEVICE != OPENREG else {}
        settings = {"TORCH_OPENREG_COMPUTE": "0", "TORCH_OPENREG_MEMORY": "80GiB", **gpu, **variables}
        return json.loads(
            run_python(prologue + code.replace("DEVICE", repr(DEVICE)), **settings).stdout.splitlines()[-1]
        )

    return program


def test_operators_allocate_what_cudas_kernels_use(run):
    found = run("import allocating_operators as operators; print(json.dumps(operators.measure(DEVICE)))")
    assert found == {name: expected for name, (_, expected) in CASES.items()}


TWO_THREADS = """
import threading
x = torch.ones(64, 64, device=DEVICE)
out = torch.empty_like(x)
seen = []
def note():
    torch.mm(x, x, out=out)
    seen.append(M.memory_allocated())
before = M.memory_allocated()
note(); note()
for _ in range(2):
    thread = threading.Thread(target=note); thread.start(); thread.join()
M.synchronize()
stream = torch.Stream(DEVICE)
with stream:
    note()
CLEAR
seen.append(M.memory_allocated())
print(json.dumps([each - before for each in seen]))
"""
CLEAR = (
    "torch._C._cuda_clearCublasWorkspaces()"
    if DEVICE != OPENREG
    else "from torch_openreg import _C; _C.clear_blas_workspaces()"
)


def test_products_have_a_workspace_for_each_thread_and_stream(run):
    found = run(TWO_THREADS.replace("CLEAR", CLEAR))
    # A thread that ends leaves its handle, and its workspace, to the next one.
    assert found == [WORKSPACE, WORKSPACE, 2 * WORKSPACE, 2 * WORKSPACE, 3 * WORKSPACE, 0]


def test_the_environment_sets_the_size_of_workspaces(run):
    program = TWO_THREADS.replace("CLEAR", CLEAR)
    assert run(program, CUBLAS_WORKSPACE_CONFIG=":16:8")[0] == 128 << 10
    assert run(program, CUBLAS_WORKSPACE_CONFIG=":4096:2:16:8")[0] == WORKSPACE


COPIED_FACTOR = """
x = torch.ones(256, 2 * 256, device=DEVICE)[:, ::2]
out = torch.empty(256, 256, device=DEVICE)
torch.mm(x, x, out=out)
before = M.memory_allocated()
M.reset_peak_memory_stats()
torch.mm(x, x, out=out)
print(json.dumps(M.max_memory_allocated() - before))
"""


def test_factors_with_gaps_are_copied_for_cublas(run):
    assert run(COPIED_FACTOR) == 2 * 4 * 256 * 256


OPERATORS = """
from torch.utils._python_dispatch import TorchDispatchMode
class Names(TorchDispatchMode):
    def __init__(self): super().__init__(); self.names = []
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))
def attention(dtype=torch.bfloat16, heads=4, kv_heads=None, length=1024, width=64, mask=None, grad=True, **options):
    make = lambda h: torch.empty(2, h, length, width, device=DEVICE, dtype=dtype, requires_grad=grad)
    kv = kv_heads or heads
    q, k, v = make(heads), make(kv), make(kv)
    if mask is not None:
        mask = torch.empty(length, length, device=DEVICE, dtype=mask)
    with Names() as names:
        torch.nn.functional.scaled_dot_product_attention(
            q, k, v, mask, enable_gqa=kv != heads, **options)
    found = [each.removeprefix("_scaled_dot_product_") for each in names.names if each.startswith("_scaled_dot")]
    return found[0] if found else "math"
x = torch.ones(4, device=DEVICE)
"""


def test_attention_is_the_operator_that_cuda_chooses(run):
    calls = {
        "attention()": "flash_attention",
        "attention(dtype=torch.float32)": "efficient_attention",
        "attention(dtype=torch.float64)": "math",
        "attention(mask=torch.bool)": "efficient_attention",
        "attention(dropout_p=0.1, is_causal=True)": "flash_attention",
        "attention(kv_heads=2)": "flash_attention",
        "attention(kv_heads=2, dtype=torch.float32)": "math",
        "attention(width=257)": "math",
        "attention(width=320)": "efficient_attention",
        "attention(width=60)": "flash_attention",
        "attention(width=60, mask=torch.bool)": "math",
    }
    found = run(OPERATORS + f"print(json.dumps([{', '.join(calls)}]))")
    if torch_has_grouped_efficient_attention():
        calls["attention(kv_heads=2, dtype=torch.float32)"] = "efficient_attention"
    assert dict(zip(calls, found, strict=True)) == calls


def torch_has_grouped_efficient_attention() -> bool:
    import torch

    return torch.__version__ >= "2.14"


@pytest.mark.parametrize(
    "capability, deprioritized, expected",
    [((9, 0), "0", "cudnn_attention"), ((9, 0), "1", "flash_attention"), ((7, 5), "0", "math")],
)
def test_attention_depends_on_the_gpu(run, capability, deprioritized, expected):
    module = "openreg_cuda.device" if DEVICE != OPENREG else "torch_openreg"
    code = f"from {module} import _C; _C.set_gpu({capability[0]}, {capability[1]}, 132, 2048)\n"
    code = OPERATORS + code + "print(json.dumps(attention()))"
    assert run(code, TORCH_CUDNN_SDPA_DEPRIORITIZED=deprioritized) == expected


ATTENTION_BYTES = """
import gc
def peaks(width, dtype, kv_heads, **options):
    make = lambda h: torch.empty(2, h, 1000, width, device=DEVICE, dtype=dtype, requires_grad=True)
    q, k, v = make(8), make(kv_heads), make(kv_heads)
    out = None
    def step():
        nonlocal out
        before = M.memory_allocated(); M.reset_peak_memory_stats()
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=kv_heads != 8, **options)
        forward = (M.memory_allocated() - before, M.max_memory_allocated() - before)
        grad = torch.empty_like(out)
        before = M.memory_allocated(); M.reset_peak_memory_stats()
        grads = torch.autograd.grad(out, (q, k, v), grad)
        return [*forward, M.max_memory_allocated() - before]
    step(); out = None; gc.collect()
    return step()
"""


# Of large blocks in usual segments, a remainder of up to 1 MiB counts as allocated.
WITHOUT_REMAINDERS = "expandable_segments:True"


def _blocks(*sizes: int) -> int:
    return sum(-(-size // 512) * 512 for size in sizes)


def test_flash_attention_has_cudas_by_products(run):
    # Output, row sums, and the state of the generator. In sums, 1000 queries of width 80 are 1024 of width 96. The
    # output has the query's strides, so that the gradient needs copies of it and of its gradient.
    rows, summed = 2 * 8 * 1000, 2 * 8 * 1024
    forward = _blocks(rows * 80 * 2, rows * 4, 16, 8)
    gradients = _blocks(rows * 80 * 2, *[2 * 2 * 1000 * 80 * 2] * 2, *[rows * 80 * 2] * 2)
    backward = gradients + _blocks(summed * 4, summed * 96 * 4, *[rows * 80 * 2] * 2)
    code = ATTENTION_BYTES + "print(json.dumps(peaks(80, torch.bfloat16, 2, is_causal=True)))"
    found = run(code, PYTORCH_ALLOC_CONF=WITHOUT_REMAINDERS)
    assert found == [forward, forward, backward]


def test_efficient_attention_has_cudas_by_products(run):
    # Row sums in multiples of 32; blocks of 64 x 64 sums with a lock each; row products for the gradient in float32.
    rows = 2 * 8 * 1000
    forward = _blocks(rows * 64 * 4, 2 * 8 * 1024 * 4)
    workspace = 2 * 8 * 16 * (64 * 64 + 4) * 4
    backward = _blocks(*[rows * 64 * 4] * 3, rows * 4, workspace)
    code = ATTENTION_BYTES + "print(json.dumps(peaks(64, torch.float32, 8)))"
    found = run(code, PYTORCH_ALLOC_CONF=WITHOUT_REMAINDERS)
    assert found[:2] == [forward, forward]
    assert found[2] == max(backward, _blocks(*[rows * 64 * 4] * 4, rows * 4, rows * 4))


def test_a_policy_of_checkpointing_sees_cudas_operator(run):
    code = """
from functools import partial
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
seen = set()
def policy(context, op, *args, **kwargs):
    seen.add(str(op))
    return CheckpointPolicy.PREFER_RECOMPUTE
x = torch.ones(1, 4, 1024, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
attend = torch.nn.functional.scaled_dot_product_attention
checkpoint(lambda q: attend(q, q, q), x, use_reentrant=False,
           context_fn=partial(create_selective_checkpoint_contexts, policy)).sum().backward()
print(json.dumps("aten._scaled_dot_product_flash_attention.default" in seen))
"""
    assert run(code) is True


def test_the_table_says_what_is_known_and_used(run):
    module = "openreg_cuda.device" if DEVICE != OPENREG else "torch_openreg"
    code = f"""
from {module} import _C
x = torch.ones(64, 64, device=DEVICE)
x @ x
torch.nn.functional.conv2d(torch.empty(8, 3, 64, 64, device=DEVICE), torch.empty(8, 3, 3, 3, device=DEVICE))
print(json.dumps(_C.cuda_allocations()))
"""
    table = run(code)
    by_op = {op: entry for entry in table for op in entry["ops"].split()}
    assert by_op["mm"]["calls"] == 1
    assert by_op["mm"]["certainty"] == "exact"
    convolution = next(entry for entry in table if entry["calls"] and entry["ops"].startswith("convolution"))
    assert convolution["certainty"] == "unknown"
    assert all(entry["source"] for entry in table)
    assert all(entry["bytes"] for entry in table if entry["certainty"] != "unknown")


def test_computing_devices_allocate_nothing_more(run):
    found = run(TWO_THREADS.replace("CLEAR", CLEAR), TORCH_OPENREG_COMPUTE="1", TORCH_OPENREG_MEMORY="1GiB")
    assert set(found) == {0}


def test_a_block_of_fits_has_the_workspaces_of_its_gpu(run):
    code = """
x, found = torch.ones(64, 64, device=DEVICE), []
for gpu in ("h100", "a100-40"):
    with torch.Stream(DEVICE), M.fits(gpu) as report:
        x @ x
    found.append(report.device.kinds["workspaces"])
print(json.dumps(found))
"""
    assert run(code) == [32 * MIB, WORKSPACE]
