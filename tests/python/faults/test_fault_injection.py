"""Faults on purpose: each kind at each place where it can occur, what it leaves behind, and how it is specified."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.openreg import faults

DEVICE = "openreg"


@pytest.fixture(autouse=True)
def _leaves_no_fault_behind():
    torch.accelerator.synchronize()
    yield
    torch.accelerator.synchronize()


@contextlib.contextmanager
def fails(*args, **kwargs):
    with (
        faults.inject(*args, **kwargs) as fault,
        pytest.raises(torch.AcceleratorError, match="injected fault") as raised,
    ):
        yield fault, raised
    assert fault.fired == 1


# --- Memory ---


def test_the_nth_allocation_fails_as_if_memory_had_run_out():
    kept = torch.empty(1000, device=DEVICE)
    del kept
    torch.openreg.empty_cache()
    held = torch.empty(2 << 20, dtype=torch.uint8, device=DEVICE)
    freed = torch.empty(40 << 20, dtype=torch.uint8, device=DEVICE)
    del freed
    before = torch.openreg.memory_stats()
    with faults.inject("oom", at="allocation:2") as fault:
        first = torch.empty(10, device=DEVICE)
        message = r"openreg:0 is out of memory\. Tried to allocate 400 bytes; .*injected fault .oom@allocation:2."
        with pytest.raises(torch.OutOfMemoryError, match=message):
            torch.empty(100, device=DEVICE)
        after = torch.openreg.memory_stats()
        third = torch.empty(100, device=DEVICE)
    assert (fault.fired, fault.counted) == (1, 3)
    assert fault.where == ["allocation 2 on openreg:0"]
    assert after["num_ooms"] == before["num_ooms"] + 1
    assert after["num_alloc_retries"] == before["num_alloc_retries"] + 1
    assert after["reserved_bytes.all.current"] < before["reserved_bytes.all.current"]  # the cache was given back
    assert held.numel() and first.numel() and third.numel()


def test_hooks_may_make_room():
    calls = []
    hook = torch.openreg.memory.register_out_of_memory_hook(lambda device, size: calls.append((device, size)) or True)
    with hook, faults.inject("oom", at="allocation:1"):
        torch.empty(25, device=DEVICE)
    assert calls == [(0, 100)]


def test_only_allocations_of_the_device_count():
    with faults.inject("oom", at="allocation:1", device="openreg:1") as fault:
        torch.empty(1, device="openreg:0")
        with pytest.raises(torch.OutOfMemoryError, match="openreg:1 is out of memory"):
            torch.empty(1, device="openreg:1")
    assert fault.counted == 1


def test_a_failed_operator_leaves_nothing_behind():
    x = torch.ones(1000, device=DEVICE)
    gc.collect()  # what earlier tests left
    before = torch.openreg.memory_allocated()
    with faults.inject("oom", at="allocation:1"), pytest.raises(torch.OutOfMemoryError):
        x + 1
    gc.collect()
    assert torch.openreg.memory_allocated() == before
    assert (x + 1).sum().item() == 2000


def test_pinned_memory_is_refused():
    with faults.inject("oom", at="pin:1") as fault:
        with pytest.raises(torch.OutOfMemoryError, match=r"out of host memory for a pinned tensor .* injected fault"):
            torch.ones(8).pin_memory()
        assert torch.ones(8).pin_memory().is_pinned()
    assert fault.fired == 1


# --- Commands ---


def test_an_operators_nth_call_fails_when_the_host_waits():
    a = torch.ones(4, 4, device=DEVICE)
    with faults.inject("error", at="aten::mm:2") as fault:
        a @ a
        b = a @ a
        c = b + 1
        with pytest.raises(torch.AcceleratorError, match=r"aten::mm failed on openreg:0.*injected fault .error@aten"):
            c.cpu()
    assert fault.where == ["call 2 (aten::mm) on openreg:0"]
    assert (a @ a).sum().item() == 64


def test_an_error_names_the_line_that_launched_it(run_forked):
    done = run_forked(
        "import torch\na = torch.ones(4, 4, device='openreg')\nb = a @ a\nb.cpu()\n",
        check=False,
        TORCH_OPENREG_FAULTS="error@launch:2",
        TORCH_OPENREG_STACKS="1",
    )
    assert "aten::mm failed on openreg:0, stream 0, launched by <string>:3 in <module>" in done.stderr


def test_a_blocking_launch_fails_at_its_call(run_forked):
    done = run_forked(
        "import torch\na = torch.ones(4, 4, device='openreg')\nb = a @ a\n",
        check=False,
        TORCH_OPENREG_FAULTS="error@aten::mm",
        TORCH_OPENREG_LAUNCH_BLOCKING="1",
    )
    assert "line 3, in <module>" in done.stderr
    assert "AcceleratorError: openreg: injected fault (error@aten::mm)" in done.stderr


def test_a_call_that_waits_for_its_command_fails_as_the_device_does():
    x = torch.zeros(3, device=DEVICE)
    with fails("error", at="launch:*", times=1):
        x.add_(1)
        torch.accelerator.synchronize()


@pytest.mark.parametrize(
    "copy",
    [
        lambda x: x.cpu(),
        lambda x: x[0].item(),
        lambda x: x.copy_(torch.zeros(3)),
        lambda x: torch.zeros(3).copy_(x),
        lambda x: (x.clone(), torch.accelerator.synchronize()),
        lambda x: (x.to("openreg:1"), torch.accelerator.synchronize(0)),
        lambda x: (x.copy_(torch.zeros(3).pin_memory(), non_blocking=True), torch.accelerator.synchronize()),
        lambda x: (x.to("cpu", non_blocking=True), torch.accelerator.synchronize()),
    ],
    ids=["to the CPU", "item", "from the CPU", "into the CPU", "within", "between", "from pinned", "non-blocking"],
)
def test_a_copy_fails(copy: Callable[[torch.Tensor], object]):
    x = torch.ones(3, device=DEVICE)
    with fails("error", at="copy:1") as (fault, _):
        copy(x)
    assert fault.counted == 1
    if torch.openreg.device_count() > 1:  # the stream of the other device waits for the failed copy
        with contextlib.suppress(torch.AcceleratorError):
            torch.accelerator.synchronize(1)
    assert torch.ones(3, device=DEVICE).sum().item() == 3


def test_kernels_are_no_copies_and_copies_no_launches():
    x = torch.ones(3, device=DEVICE)
    with faults.inject("error", at="launch:100") as launches, faults.inject("error", at="copy:100") as copies:
        y = x + 1
        y.mul_(2)
        y.clone()
        y.cpu()
    assert (launches.counted, copies.counted) == (2, 2)


def flipped(x: torch.Tensor, y: torch.Tensor) -> int:
    difference = (x.view(torch.int32) ^ y.view(torch.int32)).tolist()
    return sum(bin(word & 0xFFFFFFFF).count("1") for word in difference)


@pytest.mark.parametrize(
    ("at", "compute"),
    [
        ("aten::add", lambda x: x + 1),
        ("aten::add", lambda x: x.add_(1)),
        ("aten::add", lambda x: torch.add(x, 1, out=torch.empty_like(x))),
        ("aten::cumsum", lambda x: torch.ones_like(x).cumsum(0)),
        ("copy", lambda x: (x + 1).clone()),
    ],
    ids=["result", "in place", "out", "boxed", "copy"],
)
def test_one_bit_of_a_result_is_wrong(at: str, compute: Callable[[torch.Tensor], torch.Tensor]):
    x = torch.arange(64, dtype=torch.float32, device=DEVICE)
    with faults.inject("corrupt", at=at, seed=5) as fault:
        wrong = compute(x)
        torch.accelerator.synchronize()
    assert fault.fired == 1
    assert flipped(wrong.cpu(), torch.arange(64, dtype=torch.float32) + 1) == 1


def test_the_seed_decides_which_bit():
    x = torch.arange(64, dtype=torch.float32, device=DEVICE)

    def result(seed: int) -> torch.Tensor:
        with faults.inject("corrupt", at="aten::add", seed=seed):
            return (x + 1).cpu()

    assert torch.equal(result(1).view(torch.int32), result(1).view(torch.int32))
    assert not torch.equal(result(1).view(torch.int32), result(2).view(torch.int32))
    assert flipped(result(1), x.cpu() + 1) == 1


def test_a_copy_to_the_host_is_corrupted_not_its_source():
    x = torch.arange(64, dtype=torch.float32, device=DEVICE)
    with faults.inject("corrupt", at="copy:1"):
        wrong = x.cpu()
    assert flipped(wrong, x.cpu()) == 1
    with faults.inject("corrupt", at="copy:1"):
        assert x[63].item() != 63
    assert x[63].item() == 63


def test_views_with_gaps_are_corrupted_within():
    x = torch.zeros(8, 8, device=DEVICE)
    with faults.inject("corrupt", at="launch:1"):
        x[:, 0].add_(1)
    wrong = x.cpu()
    assert torch.equal(wrong[:, 1:], torch.zeros(8, 7))
    assert flipped(wrong[:, 0].contiguous(), torch.ones(8)) == 1


def test_slow_commands_take_longer():
    x = torch.ones(3, device=DEVICE)
    with faults.inject("slow", at="aten::add:*", delay=0.05) as fault:
        begin = time.monotonic()
        y = x + 1 + 1
        torch.accelerator.synchronize()
        assert time.monotonic() - begin >= 0.1
    assert fault.fired == 2
    assert y.tolist() == [3, 3, 3]


def test_a_slow_copy_of_the_host_takes_longer():
    x = torch.ones(3, device=DEVICE)
    with faults.inject("slow@copy:1=50ms"):
        begin = time.monotonic()
        x.cpu()
        assert time.monotonic() - begin >= 0.05


def test_a_command_hangs_until_the_fault_ends():
    x = torch.ones(3, device=DEVICE)
    stream = torch.openreg.current_stream()
    with faults.inject("hang", at="aten::add:1") as fault:
        y = x + 1
        z = x * 2
        assert not stream.query()
        other = torch.openreg.Stream()
        with torch.openreg.stream(other):
            torch.ones(3, device=DEVICE)
        other.synchronize()  # other streams go on
        fault.release()
        stream.synchronize()
    assert (y.tolist(), z.tolist()) == ([2, 2, 2], [2, 2, 2])


@pytest.fixture
def heeds_interrupts():
    """Where a shell has started the tests in the background, SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_host_that_waits_for_what_hangs_is_interrupted(heeds_interrupts):
    x = torch.ones(3, device=DEVICE)

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with faults.inject("hang", at="launch:1"):
        y = x + 1
        timer = threading.Timer(0.2, interrupt)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            torch.accelerator.synchronize()
        timer.join()
    assert y.tolist() == [2, 2, 2]


def test_a_process_ends_although_a_command_hangs(run_forked):
    done = run_forked(
        "import torch\nx = torch.ones(3, device='openreg') + 1\nprint('done')", TORCH_OPENREG_FAULTS="hang@launch:1"
    )
    assert done.stdout == "done\n"
    assert "hang@launch:1: fired 1 time" in done.stderr


def test_several_faults_at_one_command():
    x = torch.ones(3, device=DEVICE)
    with faults.inject("slow@launch:1=30ms") as slow, fails("error", at="launch:1"):
        begin = time.monotonic()
        x + 1
        torch.accelerator.synchronize()
    assert slow.fired == 1
    assert time.monotonic() - begin >= 0.03


# --- Other processes ---


def test_memory_of_another_process_is_not_opened():
    x = torch.ones(3, device=DEVICE)
    message = bytes(ForkingPickler.dumps(x))
    with fails("error", at="ipc:1") as (_, raised):
        pickle.loads(message)
    assert "memory of another process could not be opened: injected fault (error@ipc:1)" in str(raised.value)
    assert pickle.loads(message).tolist() == [1, 1, 1]


# --- Graphs ---


def captured() -> tuple[torch.openreg.CUDAGraph, torch.Tensor, torch.Tensor]:
    x = torch.ones(3, device=DEVICE)
    (x + 1) * 2  # plans
    torch.accelerator.synchronize()
    graph = torch.openreg.CUDAGraph()
    with torch.openreg.graph(graph):
        y = (x + 1) * 2
    return graph, x, y


def test_nodes_count_when_a_graph_runs_and_not_in_its_capture():
    with faults.inject("error", at="launch:*", match="no such kernel") as none:
        graph, _, y = captured()
    assert none.counted == 0
    with faults.inject("error", at="launch:4") as fault:
        graph.replay()
        torch.accelerator.synchronize()
        assert y.tolist() == [4, 4, 4]
        graph.replay()
        with pytest.raises(torch.AcceleratorError, match=r"aten::mul\S* failed .*injected fault .error@launch:4."):
            torch.accelerator.synchronize()
    assert fault.counted == 4
    graph.replay()
    torch.accelerator.synchronize()
    assert y.tolist() == [4, 4, 4]


def test_a_capture_counts_nothing():
    with faults.inject("error", at="launch:5") as fault:
        x = torch.ones(3, device=DEVICE)
        torch.accelerator.synchronize()
        before = fault.counted
        graph = torch.openreg.CUDAGraph()
        with torch.openreg.graph(graph):
            x + 1
        assert fault.counted == before


def test_a_run_hangs_and_is_slow():
    graph, _, y = captured()
    with faults.inject("hang", at="launch:2"):
        graph.replay()
        assert not torch.openreg.current_stream().query()
    torch.accelerator.synchronize()
    with faults.inject("slow@launch:*=30ms"):
        begin = time.monotonic()
        graph.replay()
        torch.accelerator.synchronize()
        assert time.monotonic() - begin >= 0.06
    assert y.tolist() == [4, 4, 4]


# --- Compilation ---


def test_a_compilation_fails():
    @torch.compile
    def compute(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x) + 1

    x = torch.ones(3, device=DEVICE)
    with (
        faults.inject("error", at="compile:1") as fault,
        pytest.raises(Exception, match=r"injected fault .error@compile:1."),
    ):
        compute(x)
    assert fault.fired == 1
    torch._dynamo.reset()


# A program that compiles a forward and a backward pass, with a cache from an earlier run of it.
COMPILES = """
import torch, torch._functorch.config, torch._inductor.config
from torch.openreg import faults
{before}
torch._functorch.config.bundled_autograd_cache = {bundled}
torch._functorch.config.enable_autograd_cache = {autograd}
torch._inductor.config.fx_graph_cache = {fx}
run = torch.compile(lambda x: x.sin() * 1.37 + x.cos(), backend="{backend}")
x = torch.ones(4, device="openreg", requires_grad={training})
with faults.inject("error", at="compile:{which}") as fault:
    try:
        y = run(x).sum()
        if {training}: y.backward()
        print("works")
    except Exception as error: print(str(error).count("injected fault (error@compile:{which})"))
print(fault.counted, fault.fired)
{after}
"""
CACHES = {
    "none": dict(autograd=False, fx=False),
    "Inductor's": dict(autograd=False, fx=True),
    "AOTAutograd's": dict(autograd=True, fx=True),
    "AOTAutograd's, with the code": dict(autograd=True, fx=True, bundled=True),
    "carried to another machine": dict(
        autograd=True,
        fx=True,
        before="from pathlib import Path\nif Path('kept').exists(): torch.compiler.load_cache_artifacts("
        "Path('kept').read_bytes())",
        after="Path('kept').write_bytes(torch.compiler.save_cache_artifacts()[0])",
    ),
}


@pytest.mark.parametrize(
    "cache", [pytest.param(each, marks=() if "code" in each else pytest.mark.full) for each in CACHES]
)
@pytest.mark.parametrize("training", [False, pytest.param(True, marks=pytest.mark.full)])
def test_graphs_from_each_cache_are_compilations(run_forked, tmp_path, cache, training):
    """Each run counts the same graphs, and a fault at any of them ends the call: no run compiles instead."""

    def run(which, folder="a"):
        options = dict(before="", after="", bundled=False, backend="inductor") | CACHES[cache]
        if which != 1000:
            options["after"] = ""
        program = COMPILES.format(which=which, training=training, **options)
        return run_forked(program, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / folder)).stdout

    graphs = 2 if training else 1
    assert run(1000) == f"works\n{graphs} 0\n"
    folder = "b" if "carried" in cache else "a"
    assert run(1000, folder) == f"works\n{graphs} 0\n"
    for which in range(1, graphs + 1):
        error, _, counted = run(which, folder).partition("\n")
        assert error == "1"
        assert counted == f"{graphs if cache.startswith('AOT') or 'carried' in cache else which} 1\n"


# --- Specifications ---


def test_a_fault_counts_from_its_beginning():
    x = torch.ones(3, device=DEVICE)
    fault = faults.inject("error", at="aten::add:2")
    x + 1
    assert not fault.is_active
    with fault:
        assert fault.is_active
        x + 1
    assert (fault.counted, fault.fired) == (1, 0)
    with fault:  # again, from the beginning
        x + 1
    assert fault.counted == 1


def test_a_fault_decorates_a_function():
    @faults.inject("oom", at="allocation:1")
    def allocate() -> None:
        torch.empty(3, device=DEVICE)

    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            allocate()


def test_an_active_fault_is_not_activated_again():
    with (
        faults.inject("oom", at="allocation:100") as fault,
        pytest.raises(RuntimeError, match="active already"),
        fault,
    ):
        pass


def test_a_whole_specification_is_accepted_too():
    fault = faults.inject("slow@copy:*=2ms, device=1, times=3")
    assert fault.spec == "slow@copy:*=2ms,device=1,times=3"
    assert faults.inject("slow", at="copy:*", delay=0.002, device=1).spec == "slow@copy:*=0.002s,device=1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("boom", "launch"), 'unknown kind .got "boom", expected oom, error, corrupt, slow, hang, lost, exit or crash'),
        (("oom", "launch"), 'no such place for "oom" .got "launch", expected allocation or pin'),
        (("error", "aten::mm:0"), "expected a number from 1, or *"),
        (("slow", "copy"), "slow@PLACE=TIME"),
    ],
)
def test_malformed_specifications_are_refused(arguments: tuple[str, str], message: str):
    with pytest.raises(RuntimeError, match=message.replace("*", r"\*")):
        faults.inject(*arguments)


def test_a_malformed_setting_is_an_error_of_the_first_use(run_forked):
    done = run_forked("import torch\ntorch.ones(1, device='openreg')", check=False, TORCH_OPENREG_FAULTS="oom@launch")
    assert done.returncode == 1
    expected = 'RuntimeError: openreg: TORCH_OPENREG_FAULTS is malformed: invalid fault: no such place for "oom"'
    assert expected in done.stderr


def test_chance_is_the_same_for_the_same_seed():
    x = torch.ones(3, device=DEVICE)

    def where() -> list[str]:
        with faults.inject("slow", at="launch", delay=0, probability=0.3, seed=11) as fault:
            for _ in range(30):
                x + 1
        assert 3 <= fault.fired <= 20
        return fault.where

    assert where() == where()


def test_a_drawn_seed_is_printed(capfd: pytest.CaptureFixture[str]):
    with faults.inject("error", at="launch", probability=0.5) as fault:
        assert capfd.readouterr().err == f"openreg: fault error@launch,probability=0.5: random seed={fault.seed}\n"


def test_the_summary_at_exit_names_what_fired_and_what_never_did(run_forked):
    code = """
import torch
from torch.openreg import faults
x = torch.ones(3, device="openreg")
try:
    (x + 1).cpu()
except torch.AcceleratorError:
    pass
with faults.inject("oom", at="allocation:100"):
    pass
with faults.inject("slow@copy:1=1ms"):
    x.cpu()
assert "slow@copy:1=1ms: fired 1 time" in faults.summary()
"""
    done = run_forked(code, TORCH_OPENREG_FAULTS="error@aten::add; hang@aten::bmm:3")
    assert done.stderr == (
        "openreg: injected faults:\n"
        "  error@aten::add: fired 1 time, first at call 1 (aten::add.Tensor) on openreg:0; 1 counted\n"
        "  hang@aten::bmm:3: never fired; 0 counted\n"
        "  oom@allocation:100: never fired; 0 counted\n"
    )


def test_an_unused_device_has_no_summary(run_forked):
    assert run_forked("import torch", TORCH_OPENREG_FAULTS="oom@allocation:1").stderr == ""
