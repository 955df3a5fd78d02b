"""A use of device memory that was given back is an error of the stream, as on a GPU, and never a silent end of the
process: for each way to the memory in `illegal_accesses.py`, with faulthandler before and after, in each schedule."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from children import child_environment
from illegal_accesses import WAYS
from linking import CANNOT_LINK

PROGRAM = Path(__file__).parent / "illegal_accesses.py"
NAMES = [name for name in WAYS if name != "compiled_kernel" or not CANNOT_LINK]
FAILED = re.compile(
    r"raised openreg: \S+ failed on openreg:0, stream \d+(, launched by \S+ in \S+)?: an illegal memory access was "
    r"encountered"
    r"( in node \d+ of a graph)?: the memory at 0x[0-9a-f]+ of openreg:0 is not allocated"
)


def run(faulthandler: str, names: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), faulthandler, *names],
        env=child_environment([], variables),
        capture_output=True,
        text=True,
        timeout=300,
    )


def check(result: subprocess.CompletedProcess[str], names: list[str]) -> None:
    lines = result.stdout.splitlines()
    assert (result.returncode, lines[-1:]) == (0, ["end"]), (result.returncode, lines, result.stderr[-2000:])
    assert [line.split()[0] for line in lines[:-1]] == names
    for line in lines[:-1]:
        assert FAILED.search(line), line
        assert ("node" in line) == line.startswith("graph"), line
    # No error was lost; but a thread that helped one command may have been counted as one of another, that has ended.
    lost = [line for line in result.stderr.splitlines() if "openreg" in line and "or another command" not in line]
    assert not lost, lost


@pytest.mark.no_executor("kernels run in another process, which ends")
@pytest.mark.parametrize("faulthandler", ["never", pytest.param("early", marks=pytest.mark.full)])
def test_it_is_an_error_of_the_stream(faulthandler):
    check(run(faulthandler, NAMES), NAMES)


@pytest.mark.no_executor("kernels run in another process, which ends")
@pytest.mark.parametrize("schedule", ["latest", pytest.param("random:1", marks=pytest.mark.full)])
def test_it_is_the_same_error_in_every_schedule(schedule):
    names = [name for name in NAMES if name not in ("compiled_kernel", "command_on_an_engine")]
    check(run("never", names, TORCH_OPENREG_SCHEDULE=schedule), names)


@pytest.mark.no_executor("kernels run in another process, which ends")
def test_replays_notice_a_faulthandler_that_was_enabled_later():
    names = [name for name in NAMES if name.startswith("graph")]
    check(run("late", names), names)


@pytest.mark.no_executor("kernels run in another process, which ends")
def test_behind_a_later_faulthandler_the_end_is_not_silent():
    """Faulthandler is asked first, and ends the process."""
    result = run("late", ["command_reads"])
    assert result.returncode in (0, -11)
    if result.returncode == 0:
        check(result, ["command_reads"])
    else:
        assert "Fatal Python error: Segmentation fault" in result.stderr


def test_with_executors_the_device_is_lost_and_the_error_names_the_command():
    names = ["graph_reads"]
    result = run("never", names, TORCH_OPENREG_EXECUTOR="process")
    line = result.stdout.splitlines()[0]
    assert "the device is lost" in line and re.search(r"SIGSEGV while running aten::add", line), (line, result.stderr)


@pytest.mark.parametrize("faulthandler", [False, True])
def test_a_command_that_follows_a_wild_pointer_dies_with_one_line(run_python, faulthandler):
    """Memory that is no device's: nothing can be saved."""
    result = run_python(
        "import ctypes, faulthandler, torch\n"
        f"{'faulthandler.enable()' if faulthandler else ''}\n"
        "library = torch.library.Library('wild', 'FRAGMENT')\n"
        "library.define('read(Tensor x) -> Tensor')\n"
        "library.impl('read', lambda x: (ctypes.string_at(64), x + 1)[1], 'CPU')\n"
        "torch.ops.wild.read(torch.ones(3, device='openreg'))\n",
        check=False,
    )
    assert result.returncode == -11
    line = r"^openreg: wild::read on openreg:0, accessed invalid memory \(address 0x40\)$"
    assert len(re.findall(line, result.stderr, re.M)) == 1, result.stderr
    assert ("Fatal Python error" in result.stderr) == faulthandler
