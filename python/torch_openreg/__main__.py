"""``python -m torch_openreg``: prints the facts for a bug report; ``--check`` also tests the device on this machine.
``python -m torch_openreg fits PROGRAM`` says on which GPUs a program fits."""

from __future__ import annotations

import argparse
import functools
import os
import platform
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from . import _C, _build, _loading, openreg
from ._slot import NAME

DEVICE = torch.device(NAME)


# --- The report ---


def _autoload() -> str:
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        return "loads no backend: TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    choice = _loading.autoload_choice()
    if choice == "off":
        return "does not load the device: TORCH_OPENREG_AUTOLOAD=off"
    other = _loading.available_accelerator()
    if other is None:
        return "loads the device"
    if choice == "force":
        return f"loads the device in addition to {other}: TORCH_OPENREG_AUTOLOAD=force"
    return f"does not load the device because {other} is available; TORCH_OPENREG_AUTOLOAD=force loads it"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def settings() -> dict[str, str]:
    """The effective value of each variable of docs/settings.md that begins with TORCH_OPENREG_.

    If `malformed_setting` is not None, those that depend on the machine are as the environment has them.
    """
    texts = dict(_C.settings())
    if not malformed_setting():
        properties = openreg.get_device_properties(0)
        texts["TORCH_OPENREG_MEMORY"] = f"{properties.total_memory / 2**20:.0f}MiB"
        texts["TORCH_OPENREG_ENGINES"] = str(properties.engines)
    return texts


@functools.cache
def malformed_setting() -> str | None:
    """The error of the first use of the device: a malformed setting, or a limit of the machine; None if it works."""
    try:
        openreg.init()
        if "TORCH_OPENREG_FAULTS" not in os.environ:  # which may be for the first allocation
            torch.empty(1, device=DEVICE)  # reads PYTORCH_ALLOC_CONF
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    return None


def report() -> Iterator[str]:
    """The lines of the report."""
    rows = {
        "torch_openreg": f"{_build.VERSION}, built for torch {_build.TORCH_VERSION}",
        "torch": str(torch.__version__),
        "Python": sys.version.replace("\n", " "),
        "system": platform.platform(),
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} for this process",
        "threads": f"{torch.get_num_threads()} for an operator on the CPU",
        "import torch": _autoload(),
    }
    rows |= {
        name: f"{value} ({'environment' if name in os.environ else 'default'})" for name, value in settings().items()
    }
    others = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTORCH_ALLOC_CONF", "LD_PRELOAD")
    rows |= {name: os.environ[name] for name in others if name in os.environ}
    width = max(map(len, rows))
    for name, value in rows.items():
        yield f"{name:{width}}  {value}"


# --- The self-test ---


def _expect(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def check_copies() -> None:
    """Copies to and from each device preserve all elements."""
    for index in range(torch.accelerator.device_count()):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
            sent = torch.arange(1000).to(dtype).pin_memory()
            returned = sent.to(torch.device(DEVICE.type, index), non_blocking=True).cpu()
            _expect(torch.equal(sent, returned), f"{dtype} on device {index}")


def check_operators() -> None:
    """Operators return the same results as on the CPU."""
    image, weight = torch.randn(2, 3, 32, 32), torch.randn(8, 3, 3, 3)
    calls: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
        "matmul": lambda x, w: x @ x.mT,
        "conv2d": torch.nn.functional.conv2d,
        "softmax": lambda x, w: x.softmax(-1),
        "sort": lambda x, w: x.sort(-1).values,
        "index": lambda x, w: x[x > 0],
        "fft": lambda x, w: torch.fft.rfft(x).real,
    }
    for name, call in calls.items():
        try:
            torch.testing.assert_close(call(image.to(DEVICE), weight.to(DEVICE)).cpu(), call(image, weight))
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


def check_asynchrony() -> None:
    """Launches do not wait for the device, and streams wait for each other."""
    first, second = openreg.Stream(), openreg.Stream()
    # On a machine that is busy with other work, the launches may take longer than a short sleep.
    for seconds in (0.5, 2, 8):
        with first:
            openreg._sleep(int(seconds * 1e9))
            x = torch.ones(1000, device=DEVICE)
        still_runs = not first.query()
        second.wait_stream(first)
        with second:
            total = x.sum().item()
        _expect(total == 1000 and first.query(), "one stream did not wait for the other")
        if still_runs:
            return
    raise AssertionError(f"two launches took {seconds} s")


def check_errors() -> None:
    """An error on the device is raised when the host waits."""
    try:
        torch.ones(3, device=DEVICE)[torch.tensor([7], device=DEVICE)]
        torch.accelerator.synchronize()
    except torch.AcceleratorError:
        return
    raise AssertionError("an index out of range raised no error")


def check_memory() -> None:
    """Running out of memory raises an error and leaks no memory."""
    before = torch.accelerator.memory_allocated()
    try:
        torch.empty(openreg.mem_get_info()[1] + 1, dtype=torch.uint8, device=DEVICE)
    except torch.OutOfMemoryError:
        pass
    else:
        raise AssertionError("an allocation larger than the memory succeeded")
    _expect(torch.accelerator.memory_allocated() == before, "the failed allocation leaked memory")


def check_training() -> None:
    """A model trains as on the CPU."""
    x, y = torch.randn(64, 10), torch.randint(3, (64,))
    losses = []
    for device in ("cpu", DEVICE):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3)).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(10):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        losses.append(loss.cpu())
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-3, atol=1e-3)


CHECKS: dict[str, Callable[[], None]] = {
    "copies": check_copies,
    "operators": check_operators,
    "asynchrony": check_asynchrony,
    "errors": check_errors,
    "memory": check_memory,
    "training": check_training,
}


_CHANGE_NO_CHECK = {f"TORCH_OPENREG_{name}" for name in ("DEVICES", "MEMORY", "ENGINES", "EXECUTOR", "AUTOLOAD")}
_FOR_DEBUGGING = tuple(name for name, _ in _C.settings() if name not in _CHANGE_NO_CHECK)


def run_checks() -> int:
    """Runs all checks; returns the number of failures."""
    failed = 0
    for name, check in CHECKS.items():
        begin = time.monotonic()
        try:
            check()
        except Exception as error:
            memory = os.environ.get("TORCH_OPENREG_MEMORY")
            if memory is not None and isinstance(error, torch.OutOfMemoryError):
                print(f"{name}: skipped, because it needs more than TORCH_OPENREG_MEMORY={memory}")
                continue
            failed += 1
            print(f"{name}: FAILED\n{traceback.format_exc()}")
        else:
            print(f"{name}: ok, {time.monotonic() - begin:.1f} s")
    return failed


def run_checks_without(settings: Sequence[str]) -> int:
    """Runs the checks in a process that lacks these variables; returns its exit status."""
    print(f"without {', '.join(settings)}, because the checks expect the defaults:", flush=True)
    environment = {name: value for name, value in os.environ.items() if name not in settings}
    command = [sys.executable, "-m", __package__, "--only-checks"]
    return subprocess.run(command, env=environment, check=False).returncode


def dump(process: int) -> int:
    """Prints the streams of a process, which gdb stops meanwhile; returns the exit status."""
    if not shutil.which("gdb"):
        sys.exit("--dump needs gdb, which is not installed")
    call = 'printf "streams:\\n%s", ((const char *(*)()) openreg_dump_streams)()'
    steps = ("set print inferior-events off", "set scheduler-locking on", "set unwindonsignal on", call)
    command = ["gdb", "-nx", "-batch", f"--pid={process}", *(f"--eval-command={step}" for step in steps)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    _, found, streams = result.stdout.partition("streams:\n")
    if not found:
        sys.exit(f"gdb cannot read process {process}:\n{result.stderr}")
    print(streams, end="")
    return 0


def main() -> int:
    if sys.argv[1:2] == ["fits"]:
        from .fits import command, run

        return command.main(sys.argv[2:], f"python -m {__package__} fits", run.device_settings)
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("--check", action="store_true", help="run a self-test of a few seconds")
    parser.add_argument("--dump", type=int, metavar="PID", help="print what the streams of a process wait for")
    parser.add_argument("--only-checks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.dump is not None:
        return dump(options.dump)
    if options.only_checks:
        return int(run_checks() > 0)
    for line in report():
        print(line)
    if malformed := malformed_setting():
        print(f"\nThe device cannot be used with these settings: {malformed}")
        return 1
    if not options.check:
        return 0
    print()
    settings = [name for name in _FOR_DEBUGGING if name in os.environ]
    return run_checks_without(settings) if settings else int(run_checks() > 0)


if __name__ == "__main__":
    sys.exit(main())
