"""Devices whose kernels run in a process of their own: what a program sees of it, also when the process ends.

tests/cpp/runtime/executor_test.cpp has the cases that need no PyTorch.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from polling import happens

Run = Callable[..., subprocess.CompletedProcess[str]]

BEGIN = """
import os, signal, sys, threading, time
import torch
from torch.openreg import faults
openreg = torch.openreg

def error_of(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")

def happens(what):
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)

def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    happens(lambda: open(f"/proc/{pid}/stat").read().split(")")[1].split()[0] == "T")
"""


@pytest.fixture
def run(run_forked: Run, run_python: Run) -> Run:
    def run(code: str, first: str = "", **arguments: object) -> subprocess.CompletedProcess[str]:
        run_it = run_python if "path" in arguments else run_forked
        return run_it(first + BEGIN + code, **{"TORCH_OPENREG_EXECUTOR": "process", **arguments})

    return run


def test_kernels_of_all_kinds_run_in_the_process(run: Run):
    """With the process stopped, each of these waits."""
    run(
        """
x = torch.rand(8, 8, device="openreg")
weight = torch.nn.Parameter(torch.ones(8, device="openreg"))
weight.grad = torch.ones_like(weight)
optimizer = torch.optim.AdamW([weight], fused=True)
compiled = torch.compile(lambda x: (x + 1).sin() * 2)
compiled(x)
graph = openreg.CUDAGraph()
with openreg.graph(graph):
    y = x + 1
    y = y * 2
openreg.synchronize()
pid = openreg.executor_pid()
calls = {
    "structured": lambda: x + 1,
    "boxed": lambda: torch.nn.functional.interpolate(x[None, None], scale_factor=2),
    "random": lambda: torch.rand(5, device="openreg"),
    "foreach": lambda: torch._foreach_add_([x, x.clone()], 1),
    "fused": optimizer.step,
    "fill": lambda: x.fill_(3),
    "product": lambda: x @ x,
    "convolution": lambda: torch.nn.functional.conv2d(x[None, None], x[None, None]),
    "compiled": lambda: compiled(x),
    "graph": graph.replay,
}
for name, call in calls.items():
    call()
    openreg.synchronize()
    stop(pid)
    call()
    time.sleep(0.05)
    assert not openreg.current_stream().query(), name
    os.kill(pid, signal.SIGCONT)
    openreg.synchronize()
    assert openreg.executor_pid() == pid
"""
    )


def test_results_are_those_of_the_program_bit_for_bit(run: Run):
    """Each setting of the process that kernels read, changed after the process has started."""
    program = """
import hashlib
torch.set_num_threads(1)  # with more, a sum depends on who computes it
torch.manual_seed(0)
a = torch.randn(128, 256).to("openreg")
b = torch.randn(256, 64).to("openreg")
image = torch.randn(2, 3, 32, 32).to("openreg")
kernel = torch.randn(4, 3, 3, 3).to("openreg")
index = torch.randint(0, 8, (5000,)).to("openreg")
tiny = torch.full((4,), 1e-40).to("openreg")
lstm = torch.nn.LSTM(16, 16).to("openreg")
lstm_input = torch.randn(5, 2, 16).to("openreg")

def results():
    with torch.no_grad():
        yield "product", a @ b
        yield "addmm", torch.addmm(b[0], a, b)
        yield "convolution", torch.nn.functional.conv2d(image, kernel)
        yield "lstm", lstm(lstm_input)[0]
        yield "index_add", torch.zeros(8, device="openreg").index_add(0, index, torch.rand(5000).to("openreg"))
        yield "sum", a.sum()
        yield "tiny", tiny * 0.5
        yield "half", (a.half() @ b.half())
        yield "arange", torch.arange(3, device="openreg") / 2
        yield "empty", torch.empty(5, device="openreg") if torch.are_deterministic_algorithms_enabled() else a[0]

def show(setting):
    torch.manual_seed(1)
    for name, result in results():
        data = result.cpu()
        print(setting, name, data.dtype, hashlib.sha256(data.numpy().tobytes()).hexdigest()[:16])

show("none")
settings = {
    "bfloat16 products": (lambda: torch.set_float32_matmul_precision("medium"),
                          lambda: torch.set_float32_matmul_precision("highest")),
    "oneDNN precision": (lambda: setattr(torch.backends.mkldnn, "fp32_precision", "bf16"),
                         lambda: setattr(torch.backends.mkldnn, "fp32_precision", "none")),
    "precision of convolutions": (lambda: setattr(torch.backends.mkldnn.conv, "fp32_precision", "bf16"),
                                  lambda: setattr(torch.backends.mkldnn.conv, "fp32_precision", "none")),
    "precision of networks": (lambda: setattr(torch.backends.mkldnn.rnn, "fp32_precision", "bf16"),
                              lambda: setattr(torch.backends.mkldnn.rnn, "fp32_precision", "none")),
    "oneDNN off": (lambda: torch.backends.mkldnn.set_flags(False), lambda: torch.backends.mkldnn.set_flags(True)),
    "deterministic": (lambda: torch.use_deterministic_algorithms(True),
                      lambda: torch.use_deterministic_algorithms(False)),
    "deterministic oneDNN": (lambda: torch.backends.mkldnn.set_flags(True, True),
                             lambda: torch.backends.mkldnn.set_flags(True, False)),
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
    "flushed denormals": (lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)),
    "two threads": (lambda: (torch.use_deterministic_algorithms(True), torch.set_num_threads(2)),
                    lambda: (torch.use_deterministic_algorithms(False), torch.set_num_threads(1))),
}
for name, (change, restore) in settings.items():
    change()
    show(name)
    restore()
show("none again")
print("process", openreg.executor_pid() is not None)
"""
    there, here = (run(program, TORCH_OPENREG_EXECUTOR=where).stdout.splitlines() for where in ("process", "thread"))
    assert there.pop() == "process True"
    assert here.pop() == "process False"
    assert len(here) > 100
    assert there == here
    # The test can fail: some settings change bits.
    plain = {line.split()[1:][-3]: line.split()[-1] for line in here if line.startswith("none ")}
    changed = {line for line in here if line.split()[-3] in plain and line.split()[-1] != plain[line.split()[-3]]}
    assert len(changed) >= 2


def test_a_crash_names_kernel_signal_and_line(run: Run):
    run(
        """
x = torch.ones(4, 4, device="openreg")
y = torch.ones(4, device="openreg:1")
kept = x + 1
openreg.synchronize()
before = openreg.executor_pid(0)
with faults.inject("crash", at="aten::mm:1"):
    x @ x  # the line
    error = error_of(openreg.synchronize)
assert type(error) is torch.AcceleratorError
for part in ("aten::mm failed on openreg:0", f"its process {before} was killed by SIGSEGV", "<string>:"):
    assert part in str(error), error
for _ in range(2):
    error = error_of(lambda: x + 1)
    assert type(error) is torch.AcceleratorError
    assert "torch.openreg.reset_device(0) starts a new process" in str(error)
assert kept.cpu().sum() == 32 and kept[0, 0].item() == 2 and "2." in repr(kept.cpu())
assert openreg.executor_pid(0) is None
assert (y + 1).sum().item() == 8
del kept
openreg.empty_cache()
openreg.reset_device(0, keep_memory=True)
assert openreg.executor_pid(0) not in (None, before)
assert (x @ x).sum().item() == 64
openreg.reset_device(0)
assert x.isnan().all()
""",
        TORCH_OPENREG_STACKS="1",
    )


@pytest.mark.parametrize(
    "name",
    ["SIGKILL", *(pytest.param(name, marks=pytest.mark.full) for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGTERM"))],
)
def test_a_signal_from_outside_is_named(run: Run, name: str):
    run(
        f"""
x = torch.ones(3, device="openreg")
(x + 1).cpu()
os.kill(openreg.executor_pid(), signal.{name})
happens(lambda: openreg.executor_pid() is None)
error = error_of(lambda: x + 1)
assert "was killed by {name}." in str(error), error
assert x.cpu().sum() == 3
openreg.reset_device(keep_memory=True)
assert (x + 1).sum().item() == 6
"""
    )


def test_the_host_can_interrupt_a_wait_for_a_stopped_process(run: Run):
    result = run(
        """
x = torch.ones(3, device="openreg")
(x + 1).cpu()
pid = openreg.executor_pid()
stop(pid)
z = x + 1
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try:
    openreg.synchronize()
except KeyboardInterrupt:
    print("interrupted")
assert time.monotonic() - begin < 20
assert (torch.ones(3, device="openreg:1") + 1).sum().item() == 6
os.kill(pid, signal.SIGCONT)
assert z.sum().item() == 6
"""
    )
    assert result.stdout == "interrupted\n"


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


ENDS = [
    "pass",
    "os.kill(os.getpid(), signal.SIGKILL)",
    *(pytest.param(end, marks=pytest.mark.full) for end in ("os._exit(0)", "raise ValueError", "sys.exit(3)")),
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize(
    "state", ["stopped", *(pytest.param(state, marks=pytest.mark.full) for state in ("idle", "killed", "crashed"))]
)
def test_the_process_ends_with_the_program(run: Run, end: str, state: str):
    begin = time.monotonic()
    result = run(
        f"""
x = torch.ones(3, device="openreg")
(x + 1).cpu()
pid = openreg.executor_pid()
print(pid, flush=True)
if "{state}" == "stopped":
    stop(pid)
    x + 1
if "{state}" == "killed":
    os.kill(pid, signal.SIGKILL)
if "{state}" == "crashed":
    with faults.inject("crash", at="launch:1"):
        x + 1
{end}
""",
        check=False,
    )
    pid = int(result.stdout.split()[0])
    assert happens(lambda: has_ended(pid))
    assert time.monotonic() - begin < 60


def test_the_program_has_no_child_and_leaves_no_descriptor_open(run: Run):
    run(
        """
read, write = os.pipe()
os.set_inheritable(write, True)
x = torch.ones(3, device="openreg")
(x + 1).cpu()
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    pass
else:
    raise AssertionError("a child")
os.close(write)
assert os.read(read, 1) == b""  # nobody else holds it
"""
    )


def test_memory_of_other_processes_is_there(run: Run, tmp_path: Path):
    (tmp_path / "receiver.py").write_text(
        """
import torch
import torch.multiprocessing as mp

def receive(requests, replies):
    tensor = requests.get()
    tensor.add_(1)
    replies.put(((tensor * 2).sum().item(), torch.openreg.executor_pid() is not None))
    requests.get()
"""
    )
    run(
        """
import torch.multiprocessing as mp
from receiver import receive
context = mp.get_context("spawn")
requests, replies = context.Queue(), context.Queue()
child = context.Process(target=receive, args=(requests, replies))
child.start()
for_child = torch.arange(1000.0, device="openreg") + 1
requests.put(for_child)
total, has_process = replies.get(timeout=60)
assert has_process
assert total == 2 * (torch.arange(1000.0) + 2).sum().item(), total
assert (for_child + 1).cpu().equal(torch.arange(1000.0) + 3)
requests.put(None)
child.join()
assert child.exitcode == 0
""",
        path=[tmp_path],
    )


def test_python_kernels_run_in_the_program(run: Run):
    run(
        """
@torch.library.custom_op("mine::double", mutates_args=(), device_types="cpu")
def double(x: torch.Tensor) -> torch.Tensor:
    assert os.getpid() == program
    return x * 2

program = os.getpid()
x = torch.ones(3, device="openreg")
assert (double(x) + 1).sum().item() == 9
assert openreg.executor_pid() is not None
"""
    )


def test_errors_and_warnings_of_kernels_are_those_of_the_program(run: Run):
    program = """
import warnings
def show(what, call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            call()
            openreg.synchronize()
            error = None
        except Exception as raised:
            error = raised
    print(what, type(error).__name__, str(error).splitlines()[0][:150], [str(each.message)[:100] for each in caught])

x = torch.rand(4, 4, device="openreg")
(x + 1).cpu()
show("index", lambda: x[torch.tensor([7], device="openreg")])
show("gather", lambda: x.gather(0, torch.full((1, 1), 9, device="openreg")))
show("singular", lambda: torch.linalg.inv(torch.zeros(3, 3, device="openreg")))
show("cholesky", lambda: torch.linalg.cholesky(-torch.eye(3, device="openreg")))
show("not implemented", lambda: torch.ones(3, dtype=torch.complex64, device="openreg").max())
show("shapes", lambda: x @ torch.ones(3, 3, device="openreg"))
show("class", lambda: torch.nn.functional.nll_loss(x, torch.full((4,), 9, device="openreg")))
show("resize", lambda: torch.add(x, x, out=torch.empty(2, device="openreg")))
show("multinomial", lambda: torch.multinomial(-x, 2))
"""
    there, here = (run(program, TORCH_OPENREG_EXECUTOR=where) for where in ("process", "thread"))
    assert there.stdout == here.stdout
    assert "is out of bounds" in here.stdout


def test_tools_work_with_it(run: Run):
    run(
        """
assert openreg.get_schedule() == "latest"
x = torch.ones(64, 64, device="openreg")
Activity = torch.profiler.ProfilerActivity
with torch.profiler.profile(activities=[Activity.CPU, Activity.PrivateUse1]) as p:
    x @ x
    openreg.synchronize()
assert any(event.name == "aten::mm" and event.device_type != torch.autograd.DeviceType.CPU for event in p.events())
side = openreg.Stream()
y = torch.zeros(3, device="openreg")
openreg.synchronize()
y.add_(1)
with openreg.stream(side):
    error = error_of(lambda: y.add_(1))
assert type(error) is openreg.UnsynchronizedAccessError
openreg.synchronize()
with faults.inject("corrupt", at="aten::add:1", seed=1) as fault:
    wrong = torch.ones(8, device="openreg") + 1
    assert not wrong.cpu().equal(torch.full((8,), 2.0))
with faults.inject("slow", at="launch:1", delay=0.1):
    begin = time.monotonic()
    x + 1
    openreg.synchronize()
    assert time.monotonic() - begin > 0.1
""",
        TORCH_OPENREG_SCHEDULE="latest",
        TORCH_OPENREG_DETECT_RACES="1",
        TORCH_OPENREG_DEBUG_MEMORY="1",
        TORCH_OPENREG_STACKS="1",
    )


def test_crash_is_refused_without_it(run: Run):
    run(
        """
error = error_of(faults.inject("crash", at="launch:1").__enter__)
assert "needs TORCH_OPENREG_EXECUTOR=process" in str(error), error
""",
        TORCH_OPENREG_EXECUTOR="default",  # the same as "thread"
    )


def test_a_malformed_setting_is_an_error(run: Run):
    result = run("torch.ones(3, device='openreg')", TORCH_OPENREG_EXECUTOR="fork", check=False)
    assert 'TORCH_OPENREG_EXECUTOR is malformed (got "fork", expected "thread" or "process")' in result.stderr


def test_64_devices_have_a_process_only_if_they_are_used(run: Run):
    run(
        """
assert openreg.device_count() == 64
tensors = [torch.ones(3, device=f"openreg:{i}") for i in (0, 1, 31, 63)]
assert [(tensor + i).sum().item() for i, tensor in enumerate(tensors)] == [3, 6, 9, 12]
assert sum(openreg.executor_pid(i) is not None for i in range(64)) == 4
""",
        TORCH_OPENREG_DEVICES="64",
        TORCH_OPENREG_MEMORY="1GiB",
    )


def test_limits_of_the_system_are_errors(run: Run):
    run(
        """
import resource
x = torch.empty(3, device="openreg")
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used, hard))
x.fill_(1)
x.add_(1)
error = error_of(openreg.synchronize)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert "cannot start the executor process of openreg:0" in str(error), error
x.fill_(1)
assert (x + 1).sum().item() == 6
"""
    )


def test_a_limit_of_addresses_that_the_program_keeps_is_enough_for_the_process(run: Run):
    run(
        """
import resource
x = torch.empty(3, device="openreg")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (512 << 20),) * 2)
x.fill_(1)
assert (x + 1).sum().item() == 6
assert openreg.executor_pid() is not None
"""
    )


# Directories are covered by empty ones, for this process and those that it starts.
HIDE = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
CLONE_NEWNS, MS_RDONLY, MS_PRIVATE_AND_BELOW = 0x20000, 1, 0x44000
may = libc.unshare(CLONE_NEWNS) == 0 and libc.mount(None, b"/", None, MS_PRIVATE_AND_BELOW, None) == 0
for path in {paths}:
    may = may and libc.mount(b"tmpfs", path.encode(), b"tmpfs", MS_RDONLY, None) == 0 and not os.listdir(path)
if not may:
    sys.exit(77)
"""


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(["/proc"], id="/proc", marks=pytest.mark.full),
        pytest.param(["/dev/shm"], id="/dev/shm", marks=pytest.mark.full),
        pytest.param(["/proc", "/dev/shm"], id="both"),
    ],
)
def test_the_process_needs_neither_proc_nor_shared_memory_of_the_system(run: Run, paths: list[str]):
    result = run(
        """
x = torch.ones(4, 4, device="openreg")
assert (x @ x).sum().item() == 64
pid = openreg.executor_pid()
assert pid is not None
with faults.inject("crash", at="aten::mm:1"):
    x @ x
    error = error_of(openreg.synchronize)
assert f"its process {pid} was killed by SIGSEGV while running aten::mm" in str(error), error
openreg.reset_device(0, keep_memory=True)
assert (x @ x).sum().item() == 64
""",
        HIDE.format(paths=paths),
        check=False,
    )
    if result.returncode == 77:
        pytest.skip("needs to mount, which this system forbids")
    assert result.returncode == 0, result.stderr


class MemoryGroup:
    """A control group of this test, within the one of this process, for memory."""

    def __init__(self) -> None:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        v1 = next((path for _, controllers, path in lines if "memory" in controllers.split(",")), None)
        v2 = next((path for _, controllers, path in lines if not controllers), "/")
        root, path = ("/sys/fs/cgroup/memory", v1) if v1 is not None else ("/sys/fs/cgroup", v2)
        self.usage, self.limit = (
            ("memory.usage_in_bytes", "memory.limit_in_bytes") if v1 is not None else ("memory.current", "memory.max")
        )
        self.path = Path(root + path, f"test-executor-{time.monotonic_ns()}")
        self.path.mkdir()

    def is_of_memory(self) -> bool:
        return os.access(self.path / self.limit, os.W_OK) and os.access(self.path / self.usage, os.R_OK)

    def remove(self) -> None:
        assert happens(self._is_removed)  # its processes may be ending

    def _is_removed(self) -> bool:
        try:
            self.path.rmdir()
        except OSError:
            return False
        return True


@pytest.fixture
def memory_group() -> Iterator[MemoryGroup]:
    try:
        group = MemoryGroup()
    except OSError as error:
        pytest.skip(f"needs a control group for memory, which this system refuses ({error})")
    try:
        if not group.is_of_memory():
            pytest.skip("needs a control group for memory, and here groups do not count it")
        yield group
    finally:
        group.remove()


def test_if_memory_runs_out_the_system_ends_the_process_and_not_the_program(run: Run, memory_group: MemoryGroup):
    """The convolution needs 600 MB besides its operands, in the process."""
    run(
        f"""
from pathlib import Path
group = Path({str(memory_group.path)!r})
(group / "cgroup.procs").write_text(str(os.getpid()))
x = torch.ones(2, 64, 512, 512, device="openreg")
weight = torch.ones(8, 64, 3, 3, device="openreg")
y = torch.ones(3, device="openreg:1")
# The memory of the result comes from the cache then, so the device asks for none.
torch.empty(2, 8, 510, 510, device="openreg")
for device in (0, 1):
    openreg.synchronize(device)  # both processes run before memory becomes scarce
pid = openreg.executor_pid()
used = int((group / "{memory_group.usage}").read_text())
(group / "{memory_group.limit}").write_text(str(used + (256 << 20)))  # room for what the error takes in the program
with torch.backends.mkldnn.flags(enabled=False):
    torch.nn.functional.conv2d(x, weight)
    error = error_of(openreg.synchronize)
assert type(error) is torch.AcceleratorError
assert f"its process {{pid}} was killed by SIGKILL while running aten::convolution" in str(error), error
assert x[0, 0, 0, :3].cpu().sum() == 3
assert (y + 1).sum().item() == 6
openreg.reset_device(0, keep_memory=True)
assert (weight + 1).sum().item() == 2 * weight.numel()
"""
    )


def test_a_setting_of_convolutions_travels_with_them(run: Run):
    program = """
import hashlib
torch.set_num_threads(1)
torch.manual_seed(0)
images, kernel = torch.randn(16, 3, 32, 32).to("openreg"), torch.randn(8, 3, 3, 3).to("openreg")
for nnpack in (True, False):
    with torch.backends.mkldnn.flags(enabled=False), torch.backends.nnpack.flags(enabled=nnpack):
        y = torch.nn.functional.conv2d(images, kernel, padding=1).cpu()
        print(hashlib.sha256(y.numpy().tobytes()).hexdigest())
"""
    there, here = (run(program, TORCH_OPENREG_EXECUTOR=where).stdout for where in ("process", "thread"))
    assert there == here


def test_a_crash_at_a_blocking_launch_is_that_of_the_device(run: Run):
    run(
        """
x = torch.ones(4, device="openreg")
with faults.inject("crash", at="aten::mul:1"):
    error = error_of(lambda: x * 2)
assert type(error) is torch.AcceleratorError and error.error_code == 46, error
""",
        TORCH_OPENREG_LAUNCH_BLOCKING="1",
    )


def test_the_first_error_after_a_crash_has_the_code_of_a_lost_device(run: Run):
    run(
        """
x = torch.ones(4, device="openreg")
with faults.inject("crash", at="aten::mul:1"):
    x * 2
    codes = [error_of(call).error_code for call in (openreg.synchronize, lambda: x + 1)]
assert codes == [46, 46]
"""
    )


def test_it_starts_where_there_is_no_directory_any_more(run: Run):
    run(
        """
import tempfile
directory = tempfile.mkdtemp()
os.chdir(directory)
os.rmdir(directory)
x = torch.ones(100, 100, device="openreg")
assert (x @ x).sum().item() == 1e6
"""
    )


def test_what_is_written_to_closed_outputs_ends_up_in_no_file_of_the_device(run_forked: Run, tmp_path: Path):
    """A program's file has the lowest number that is free."""
    run_forked(
        f"""
import os
for number in (0, 1, 2):
    os.close(number)
import torch
x = torch.ones(3, device="openreg")
y = (x + 1).sum().item()
links = [f"/proc/self/fd/{{number}}" for number in (0, 1, 2)]
files = [os.readlink(link) for link in links if os.path.islink(link)]
with open({str(tmp_path / "found")!r}, "w") as file:
    print(y, [name for name in files if "openreg" in name], file=file)
""",
        TORCH_OPENREG_EXECUTOR="process",
    )
    assert (tmp_path / "found").read_text() == "6.0 []\n"


@pytest.mark.parametrize("name", ["SIGSTOP", "SIGKILL"])
def test_the_device_can_be_reset_whatever_happens_to_the_parent_of_the_process(run: Run, name: str):
    run(
        f"""
x = torch.ones(3, device="openreg")
(x + 1).cpu()
pid = openreg.executor_pid()
parent = int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
os.kill(parent, signal.{name})
if {name == "SIGKILL"}:
    happens(lambda: openreg.executor_pid() is None)
    error = error_of(lambda: x + 1)
    assert f"its process {{pid}} was killed because its parent, process {{parent}}, ended" in str(error), error
openreg.reset_device(keep_memory=True)
assert (x + 1).sum().item() == 6
"""
    )


def test_a_program_that_adopts_orphans_keeps_no_zombies(run: Run):
    """As the first process of a container does."""
    run(
        """
import ctypes
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
x = torch.ones(3, device="openreg")
for _ in range(3):
    (x + 1).cpu()
    os.kill(openreg.executor_pid(), signal.SIGKILL)
    happens(lambda: openreg.executor_pid() is None)
    openreg.reset_device(keep_memory=True)

def zombies():
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and fields[1] == str(os.getpid()):
                found.append(entry)
    return found

happens(lambda: not zombies())
"""
    )
